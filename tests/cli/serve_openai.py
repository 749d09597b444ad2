# SPDX-License-Identifier: Apache-2.0
"""serve_openai.py - the official openai client with bauta serve: every call,
streaming and not.

    serve_openai.py BAUTA MODEL"""
import sys

import openai

from server_process import Server


def completions(client):
    one = client.completions.create(model="tiny", prompt="the mask",
                                    max_tokens=12, seed=3, temperature=0.8)
    assert one.object == "text_completion" and one.choices[0].text
    assert one.usage.prompt_tokens == 8 and one.usage.completion_tokens == 12
    stream = client.completions.create(model="tiny", prompt="the mask",
                                       max_tokens=12, seed=3, temperature=0.8,
                                       stream=True,
                                       stream_options={"include_usage": True})
    parts = list(stream)
    text = "".join(p.choices[0].text for p in parts if p.choices)
    assert text == one.choices[0].text, (text, one.choices[0].text)
    assert parts[-1].usage.completion_tokens == 12
    assert parts[-2].choices[0].finish_reason == "length"
    many = client.completions.create(
        model="tiny", prompt=["a", "b"], n=2, max_tokens=3, logprobs=2,
        echo=True, stop=["zzz"], logit_bias={"97": 2}, presence_penalty=0.5,
        frequency_penalty=0.5, user="me", top_p=0.9)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    found = many.choices[0].logprobs
    assert found.tokens[0] == "a" and found.token_logprobs[0] is None
    assert len(found.top_logprobs[1]) >= 2 and found.text_offset[1] == 1
    ids = client.completions.create(model="tiny", prompt=[116, 104],
                                    max_tokens=1)
    assert ids.usage.prompt_tokens == 2


def chat(client):
    messages = [{"role": "system", "content": "brief"},
                {"role": "user", "content": "the mask"}]
    tools = [{"type": "function", "function": {"name": "look"}}]
    one = client.chat.completions.create(
        model="tiny", messages=messages, max_completion_tokens=9, seed=5,
        logprobs=True, top_logprobs=2, tools=tools)
    choice = one.choices[0]
    assert one.object == "chat.completion" and choice.message.role == "assistant"
    assert len(choice.logprobs.content) == 9
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    stream = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=9, seed=5, tools=tools,
        stream=True, stream_options={"include_usage": True})
    parts = list(stream)
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    assert text == choice.message.content, (text, choice.message.content)
    assert parts[0].choices[0].delta.role == "assistant"
    assert parts[-1].usage.completion_tokens == 9


def embeddings(client):
    base64 = client.embeddings.create(model="tiny", input=["a king", "queen"])
    floats = client.embeddings.create(model="tiny", input=["a king", "queen"],
                                      encoding_format="float")
    assert len(floats.data) == 2 and floats.data[1].index == 1
    for a, b in zip(base64.data, floats.data):
        assert all(abs(x - y) < 1e-6 for x, y in zip(a.embedding, b.embedding))
        assert abs(sum(x * x for x in b.embedding) - 1) < 1e-5


def refused(kind, call, **arguments):
    try:
        call(**arguments)
    except kind as error:
        return error
    raise SystemExit("not refused with %s" % kind)


def errors(client, url):
    create = client.completions.create
    missing = refused(openai.NotFoundError, create, model="none", prompt="a")
    assert missing.code == "model_not_found" and missing.param == "model"
    long = refused(openai.BadRequestError, create, model="tiny",
                   prompt="the " * 500)
    assert long.code == "context_length_exceeded"
    wrong = refused(openai.BadRequestError, create, model="tiny", prompt="a",
                    temperature=-1)
    assert wrong.param == "temperature"
    stranger = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    refused(openai.AuthenticationError, stranger.models.list)


def main(bauta, model):
    with Server(bauta, model, "--alias", "tiny", "--api-key", "secret",
                "--threads", "1") as server:
        url = server.url + "/v1"
        client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
        assert [m.id for m in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").owned_by == "bauta"
        completions(client)
        chat(client)
        embeddings(client)
        errors(client, url)
        client.close()
    print("openai %s runs every call" % openai.__version__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
