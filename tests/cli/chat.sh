#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# chat.sh - bauta chat: messages through a template, answers, commands; lines
# from a pipe, and keys from a terminal where python3 can make one. On a small
# model that is trained here.
#
#   chat.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
: >stdout
: >stderr

yes "the mask hides the face, and the face is behind the mask" |
    head -n 60 >text
train gpt --preset gpt2-tiny --set n_layer=1 --set n_embd=32 --set n_head=2 \
    --tokenizer bytes --context 256 --batch-size 4 --steps 40 \
    --learning-rate 0.01 text
cp -RL gpt/last talks
printf '%s' '{% if tools %}<tools>{{ tools | tojson }}{% endif %}' \
    '{% for m in messages %}{% if m.content == "no" %}' \
    '{{ raise_exception("not that") }}{% endif %}' \
    '<{{ m.role }}>{{ m.content }}{% endfor %}' \
    '{% if add_generation_prompt %}<answer>{% endif %}' \
    >talks/chat_template.jinja

# ---- the command line ------------------------------------------------------
runs 0 --help
says stdout "examples"
refused "the model's folder is missing"
refused "more than one message: 'a' and 'b'" talks a b
refused "--temp is -1, not from 0 to" talks --temp -1
refused "did you mean '--system'?" talks --sistem x
fails "nowhere" nowhere
fails "'bauta generate' continues texts without a chat template" gpt/last hi
fails "none" talks hi --tools none
echo '{"a": 1}' >tools
fails "tools: the tools are not an array of objects" talks hi --tools tools
echo '[1]' >tools
fails "not an array of objects" talks hi --tools tools
echo '[{]' >tools
fails "tools: line 1" talks hi --tools tools

# ---- answers ---------------------------------------------------------------
answer() { # PROMPT: what bauta generate makes of it
    "$bauta" generate talks "$1" -n 6 --greedy --quiet
}
runs 0 talks "the mask" -n 6 --greedy --quiet
first=$(cat stdout)
[ "$first" = "$(answer "<user>the mask<answer>")" ] ||
    fail "not the completion of the prompt"
[ ! -s stderr ] || fail "not quiet"
runs 0 talks -p "the mask" -n 6 --greedy --threads 2
[ "$first" = "$(cat stdout)" ] || fail "threads change an answer"
says stderr "prompt tokens (0 cached), 6 new tokens"
runs 0 talks "the mask" -n 6 --greedy --system "be brief" --quiet
[ "$(cat stdout)" = "$(answer "<system>be brief<user>the mask<answer>")" ] ||
    fail "the system message"
echo '[{"name": "look"}]' >tools
runs 0 talks "the mask" -n 6 --greedy --tools tools --quiet
[ "$(cat stdout)" = \
    "$(answer '<tools>[{"name": "look"}]<user>the mask<answer>')" ] ||
    fail "the tools"
runs 0 talks "the mask" -n 5 --seed 3 --temp 0.9 --json --quiet
says stdout '"role":"assistant","content":"'
says stdout '"finish":"length"'
says stdout '"new_tokens":5,"seed":3'
cp stdout drawn
runs 0 talks "the mask" -n 5 --seed 3 --temp 0.9 --json --quiet
cmp -s stdout drawn || fail "the same seed draws another answer"
fails "not that" talks no

# ---- a conversation on a pipe ------------------------------------------------
# Every answer is in the prompt of the next one, whose prefix is cached.
cat >in <<'END'
the mask

/show
hides \
the face
//help
/show
/exit
never
END
runs 0 talks -n 6 --greedy --json
[ "$(grep -c '"role":"assistant"' stdout)" = 3 ] || fail "not three answers"
says stdout "<user>the mask<assistant>$first<answer>"
says stdout "<user>hides "
says stdout "the face<assistant>"
says stdout "<user>/help<assistant>"
! grep -q never stdout || fail "/exit is not the end"
! grep -q "(0 cached).*(0 cached)" stderr || fail "nothing is cached"
[ "$(grep -c '(0 cached)' stderr)" = 1 ] || fail "the prefix is not cached"
# The second answer is that of the whole conversation.
printf 'the mask\nand\n' >in
runs 0 talks -n 6 --greedy --quiet
[ "$(cat stdout)" = "$first
$(answer "<user>the mask<assistant>$first<user>and<answer>")" ] ||
    fail "the second answer"
# Commands that change the messages.
cat >in <<'END'
/system be brief
one
/undo
/show
two
/regen
/save saved
/clear
/show
/load saved
/show
/system
/tool 42
/show
END
runs 0 talks -n 3 --seed 5 --quiet
says stdout "<system>be brief<user>two<assistant>"
says stdout "<system>be brief<answer>"
says stdout "<tool>42<assistant>"
grep -qx '<system>be brief<answer>' stdout || fail "/undo"
says saved '"content": "be brief"'
! grep -q '"one"' saved || fail "/undo keeps a message"
# A failure ends a pipe.
for line in /nothing /save /load "/load nowhere" "/save /nowhere/x" /undo \
    /regen no; do
    printf '%s\nthe mask\n' "$line" >in
    runs 1 talks -n 2 --quiet
    [ ! -s stdout ] || fail "$line: an answer after a failure"
done
# A conversation that outgrows the model's context.
yes "the mask hides the face" | head -n 12 | tr '\n' ' ' >in
fails "positions" talks -n 2 --quiet
: >in
runs 0 talks
[ ! -s stdout ] || fail "an answer to nothing"

# ---- keys ------------------------------------------------------------------
if ! command -v python3 >/dev/null; then
    echo "$cases cases; there is no python3 for those of a terminal"
    exit 0
fi
cat >keys.py <<'PY'
import os, pty, select, sys
def talk(lines, term="xterm"):
    """Type lines, each at a prompt of its own: between two prompts the
    terminal is the kernel's, for which ^C is a signal. The whole output."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = term
        os.execv(sys.argv[1], ["bauta", "chat", "talks", "-n", "3", "--greedy",
                               "--quiet"])
    prompt = b"> " if term == "dumb" else b"\r> \x1b[K"
    got, seen = b"", 0
    def more():
        try:
            return os.read(fd, 65536)
        except OSError:
            return b""
    def prompted(output, typed):
        return prompt in (output.partition(b"\n")[2] if typed else output)
    for line in [b""] + lines:
        os.write(fd, line)
        while not prompted(got[seen:], line):
            ready, _, _ = select.select([fd], [], [], 300)
            part = more() if ready else b""
            if not part:
                raise SystemExit("no prompt in %r" % got)
            got += part
        seen = len(got)
    os.write(fd, b"\x04")
    part = more()
    while part:
        got += part
        part = more()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, got
    return got
def shown(got):
    return [part for part in got.replace(b"\r", b"").split(b"\n")
            if part.endswith(b"<answer>") and b"\x1b" not in part]
left, right, up, down = b"\x1b[D", b"\x1b[C", b"\x1b[A", b"\x1b[B"
home, end, delete = b"\x1b[H", b"\x1bOF", b"\x1b[3~"
# Each /system shows what was edited.
edits = [
    (b"/system ab" + left + b"X" + right + b"c", b"aXbc"),
    (b"system z" + home + b"/" + end + b"!", b"z!"),
    (b"/system abcd" + left * 2 + delete + b"\x7f", b"ad"),
    (b"/system abc def\x17ghi", b"abc ghi"),
    (b"rubbish\x15/system k\x01\x05l", b"kl"),
    (b"/system abc\x02\x02\x0b", b"a"),
    (b"/system " + "\u00e9\u00fc".encode() + left + b"\x7f", "\u00fc".encode()),
    (b"/system " + "\u20ac".encode() + b"\x7fx", b"x"),
    (b"/system " + b"long " * 60 + home + right * 8 + b"very ",
     b"very " + b"long " * 60),
    (up * 4 + down * 3 + up * 3 + b"2", None),
    (b"half a line\x03/system gone\x1b[5~\x1b[1;5C?", b"gone?"),
]
lines = []
for line, _ in edits:
    head, interrupt, line = line.rpartition(b"\x03")
    lines += [head + interrupt] * bool(interrupt) + [line + b"\r", b"/show\r"]
got = shown(talk(lines))
assert len(got) == len(edits), got
for (line, want), have in zip(edits, got):
    if want is not None:
        assert have == b"<system>" + want.strip() + b"<answer>" or \
            have == b"<system>" + want + b"<answer>", (line, want, have)
# A terminal that cannot move a cursor reads lines as they are.
got = shown(talk([b"/system plain\n", b"/show\n"], term="dumb"))
assert got and got[-1].endswith(b"<system>plain<answer>"), got
PY
python3 keys.py "$bauta" >stdout 2>stderr || fail "keys"
echo "$cases cases"
