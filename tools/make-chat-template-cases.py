#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/data/chat_templates.json: snippets of chat templates with the
text that Jinja makes of them under the settings of transformers.

    tools/make-chat-template-cases.py [FILE]

The file has the variables and a list of cases. A case is a template and its
text, or, without a text, a template that must be refused. Needs jinja2 3.1,
which the tests themselves do not. Add a snippet here for each new feature.
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = "2026-11-16T12:34:56"

VARIABLES = {
    's': ' Grüße 你好\n',
    'n': None,
    't': True,
    'f': 2.5,
    'i': 7,
    'l': [3, 1, 2],
    'd': {'b': 1, 'a': [1, {'x': 'y'}], 'items': 5},
    'm': [{'role': 'user', 'content': 'A'}, {'role': 'assistant', 'content': 'b', 'n': 2}],
    'e': '',
    'big': 1e+22,
    'neg': -3,
}

CASES = [
    '{{ range(0, 5, 2) }}|{{ range(5, 0, -2) }}|{{ range(3, 1) }}|{{ range(9)[1:3] }}',
    '{{ -2**2 }}|{{ 2**-1 }}|{{ 2**3**2 }}',
    '{{ 1 is string if true else 5 }}',
    "{{ {'a':1}.items() }}|{{ {'a':1}.keys() }}|{{ range(3) }}",
    '{{ range(1,9,2) }}|{{ (1,) }}|{{ () }}',
    '{{ namespace(a=1) }}',
    "{{ 'a' 'b' ~ 1 }}",
    '{{ x.y }}',
    '{{ {}.y }}',
    '{{ [].append(1) }}',
    '{% for k,v in d.items() %}{{k}}={{v}};{% endfor %}',
    '{% for i in [1,2,3] %}{% set z = i %}{{ z }}{% endfor %}{{ z }}',
    '{% macro f(a,b=a) %}{{a}}{{b}}{{varargs}}{{kwargs}}{% endmacro %}{{ f(1) }}{{ f(1,2,3,x=4) }}{{f}}',
    '{% macro f(a) %}{{a}}{% endmacro %}{{ f(1,2) }}',
    '{% macro f(a) %}{{a}}{% endmacro %}{{ f(b=2) }}',
    '{% macro f(a) %}{{a}}{% endmacro %}{{ f() }}|{{ f(a=3) }}',
    '{% macro f(a) %}[{{ caller(a) }}]{% endmacro %}{% call(x) f(4) %}<{{x}}>{% endcall %}',
    '{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}',
    '{{ 1_000.5 }}|{{ 0x10 }}|{{ 1e3 }}',
    '{{ 7 // -2 }}|{{ -7 % 3 }}|{{ 7/2 }}',
    '{{ 1.0 }}|{{ 1e16 }}|{{ 1e-5 }}',
    '{{ 1.5e300*1e10 }}|{{ 0.1+0.2 }}|{{ 123456789012345680.0 }}',
    '{{ 100000.0 }}|{{ 0.0001 }}|{{ -0.0 }}',
    '{{ 5e-324 }}|{{ big }}',
    "{{ 'abc'[::-1] }}|{{ 'abc'[5:] }}|{{ [1,2,3][-2:] }}",
    "{{ 'abc'[-1] }}|{{ 'abc'[7] }}|{{ [1,2,3,4][::2] }}",
    "{{ [1,2,3,4][::-2] }}|{{ [1,2,3][5:1:-1] }}|{{ 'Grüße'[2:4] }}",
    '{{ s[1:-1:2] }}',
    "{{ 'a'|safe + '<' }}|{{ ('a'|safe) ~ '<' }}|{{ '<'|e }}",
    '{{ \'<"\\\'\'|escape }}|{{ (\'<\'|e) + \'<\' }}',
    "{{ 'a,b,,c'.split(',') }}|{{ 'a b  c '.split() }}|{{ 'a,b,c'.split(',',1) }}",
    "{{ 'a,b,c'.rsplit(',',1) }}|{{ ' a b c '.split(none,1) }}|{{ ''.split() }}",
    "{{ ''.split(',') }}",
    "{{ 'x' in undef }}|{{ undef in [1] }}|{{ undef == undef2 }}",
    '{{ undef|length }}|{{ undef|list }}',
    "{{ undef in 'abc' }}",
    '{{ not x is defined }}',
    "{{ 1 < 2 < 3 }}|{{ 3 > 2 > 2 }}|{{ 'a' < 'b' }}",
    '{{ [1,2] < [1,3] }}',
    "{{ 'a' < 1 }}",
    "{{ 'a'.join(['x','y']) }}|{{ ['a',1]|join('-') }}|{{ true }}",
    '{{ none }}|{{ [true,none,1.5,\'it\\\'s\', "q\\"\'", \'n\\n\'] }}',
    "{{ x|default('a') }}|{{ ''|default('a',true) }}|{{ n|default('q') }}",
    '{{ x|d }}',
    "{%- for k, v in {'a':1,'B':2,'c':0}|dictsort(reverse=true) %}{{k}}{{v}}{{ loop.index }}{{loop.revindex}}{{loop.length}} {% endfor %}",
    "{{ {'a':3,'b':1}|dictsort(by='value') }} {{ {'a':3,'B':1}|dictsort(true) }}",
    '{% for a in [3,1,2]|sort if a>1 %}{{a}}{{loop.last}}{% else %}x{% endfor %}',
    '{% for a in [3,1,2] if a>9 %}{{a}}{% else %}x{% endfor %}',
    "{{ 5|string|int + 1 }}|{{ '3.7'|int }}|{{ 'x'|int(9) }}",
    '{{ 3.7|round }}|{{ 2.5|round }}|{{ 5|round }}',
    "{{ 2.675|round(2) }}|{{ 2.1|round(0,'ceil') }}|{{ 'ff'|int(0,16) }}",
    "{{ '1.5'|float }}|{{ 'q'|float(2) }}",
    "{{ '%s-%05.1f-%d' % ('a',3.14159,7) }}|{{ '%s'|format(3) }}|{{ '%5s|%-5s|%x|%r|%%' % ('a','b',255,'c') }}",
    "{{ '%+d' % 5 }}|{{ '%.3s' % 'abcdef' }}|{{ '%s' % [1,2] }}",
    "{{ '%d' % 'a' }}",
    "{{ '%s %s' % 'a' }}",
    "{{ '%s' % ('a','b') }}",
    "{{ '{} {} {0}'.format(1,2) }}",
    "{{ '{} {}'.format(1,'x') }}|{{ '{1}{0}'.format('a','b') }}|{{ '{a:>5}|{b:<4}|{c:^5}|{d:.2f}|{e:05d}|{f:,}|{{}}'.format(a='x',b='y',c='z',d=3.14159,e=42,f=1234567) }}",
    "{{ '{!r}'.format('q') }}|{{ '{:x}'.format(255) }}|{{ '{:+}'.format(3) }}",
    "{{ '{:*^9}'.format('mid') }}|{{ '{:.1%}'.format(0.256) }}",
    '{% set x %}a{{ 1 }}{% endset %}{{ x }}',
    '{% set x | upper | trim %} a {% endset %}[{{ x }}]',
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}",
    "{{ 'a' is in 'abc' }}|{{ 1 is sameas 1 }}|{{ 4 is divisibleby 2 }}",
    "{{ 3 is odd }}|{{ 3 is even }}|{{ 'a' is eq 'a' }}",
    "{{ 3 is gt 2 }}|{{ 'abc' is lower }}|{{ 'ABC' is upper }}",
    '{{ 1 is number }}|{{ true is number }}|{{ true is integer }}',
    "{{ 1.0 is float }}|{{ 'upper' is filter }}|{{ 'odd' is test }}",
    '{{ x is callable }}|{{ range is callable }}',
    '{{ (1,2) == [1,2] }}|{{ 1 == 1.0 }}|{{ true == 1 }}',
    "{{ 'a' == 1 }}|{{ {'a':1} == {'a':1} }}|{{ none == undef }}",
    "{{ 'ß'.upper() }}|{{ 'hello wORld'|title }}|{{ 'heLLo'|capitalize }}",
    '{{ "they\'re bill\'s"|title }}|{{ \'aB cD\'.title() }}|{{ \'x\'.capitalize() }}',
    '{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ l|tojson(indent=0) }}',
    '{{ []|tojson(indent=2) }}|{{ {}|tojson(indent=2) }}|{{ s|tojson }}',
    "{{ s|tojson(ensure_ascii=true) }}|{{ d|tojson(separators=(',',':')) }}|{{ d|tojson(sort_keys=true) }}",
    '{{ \'😀"\\\\\\x01\\x7f\'|tojson }}|{{ \'😀\\x7f\'|tojson(true) }}|{{ [1.0,1e30,none,true]|tojson }}',
    "{{ {1:2,none:3,true:4,1.5:6}|tojson }}|{{ (1,2)|tojson }}|{{ l|tojson(indent='\\t') }}",
    '{{ undef|tojson }}',
    '{{ d.items()|tojson }}',
    "{{ x is undefined }}{{ 'a' ~ none ~ true ~ 1.0 ~ [1] }}",
    '{% break %}',
    '{{ foo|nofilter }}',
    "{{ 'a'.nope() }}",
    '{{ none.x }}',
    '{{ none.x.y }}',
    '{{ 1.x }}',
    "{{ {'a':1}['b'] }}|{{ {'a':1}.a }}|{{ [1,2].0 }}",
    '{{ [[1,2]].0.1 }}',
    'a',
    '  {% if true %}',
    '  b',
    '  {% endif %}',
    'c',
    'a {%- if true %} b {% endif -%}  c',
    '{% raw %} {{ x }} {% endraw %} q',
    '  {#c#}  d {#- e -#} f',
    'x {{ 1 }} y {%+ if true %} z{% endif +%} w',
    "{{ '\\u00e9\\x41\\q\\101\\n\\\\\\'' }}",
    "{{ 'abc'|batch(2)|list }}|{{ [1,2,3]|batch(2,'x')|list }}|{{ [1,2,3]|slice(2)|list }}",
    "{{ [1,2,3,4]|slice(3,'x')|list }}|{{ [1,2,3]|first }}|{{ [1,2,3]|last }}",
    "{{ [1,2,3]|sum }}|{{ 'a b'|wordcount }}|{{ []|first }}",
    "{{ [3,1]|min }}|{{ ['a','C','b']|max }}|{{ m|sum('n') }}",
    '{% with a=1, b=a %}{{a}}{{b}}{% endwith %}{{ a }}',
    "{{ dict(a=1) }}|{{ dict(d, z=1) }}|{{ dict([('a',1)]) }}",
    "{% for x in 'ab' %}{{ loop.cycle('x','y') }}{{ loop.changed(x) }}{{ loop.previtem }}{{loop.nextitem}}{{ loop.depth }}{{ loop.depth0 }}{{loop.first}}{{loop.revindex0}}{% endfor %}",
    '{{ caller }}',
    "{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ ['b','A','c']|sort }}",
    "{{ ['b','A','c']|sort(case_sensitive=true) }}|{{ m|sort(attribute='role')|map(attribute='role')|list }}|{{ l|reverse|list }}",
    "{{ 'abc'|reverse }}|{{ l|unique|list }}|{{ ['a','A','b']|unique|list }}",
    "{{ l|select('odd')|list }}|{{ l|reject('odd')|list }}|{{ l|select|list }}",
    "{{ m|selectattr('n')|list }}|{{ m|selectattr('role','equalto','user')|list }}|{{ m|rejectattr('role','in',['user'])|map(attribute='content')|join }}",
    "{{ m|map(attribute='n',default=0)|list }}|{{ ['a','b']|map('upper')|join(',') }}|{{ ['a']|map('replace','a','b')|list }}",
    "{{ l|map('string')|length }}",
    "{{ (l|map('string')) is iterable }}|{{ (l|map('string')) is sequence }}|{{ 'x' if l|select('equalto', 99) else 'y' }}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{{ m|groupby('role') }}",
    '{{ l.index(1) }}|{{ l.count(3) }}|{{ l.copy() }}',
    "{{ d.get('q') }}|{{ d.get('q', 3) }}|{{ d.get('b') }}",
    '{{ d.values()|list }}|{{ d.keys()|list }}|{{ d|length }}',
    '{{ d|list }}|{{ d|items|list }}',
    '{{ l.index(99) }}',
    "{{ s|trim }}|{{ s.strip() }}|{{ 'xxaxx'.strip('x') }}",
    "{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ 'xyaz'|trim('xz') }}",
    "{{ ' \\t\\na\\u00a0'.strip() }}",
    '{{ s|length }}|{{ s|upper }}|{{ s|lower }}',
    "{{ 'abc'.replace('b','x') }}|{{ 'aaa'|replace('a','b',2) }}|{{ 'abc'.replace('','-') }}",
    "{{ 'aaa'.replace('a','b',1) }}|{{ 'abc'.find('c') }}|{{ 'abc'.find('z') }}",
    "{{ 'abcabc'.rfind('b') }}|{{ 'aaa'.count('a') }}|{{ 'a\\nb\\r\\nc'.splitlines() }}",
    "{{ 'a-b'.partition('-') }}|{{ 'abc'.startswith(('x','a')) }}|{{ 'abc'.endswith('bc') }}",
    "{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ '5'.zfill(3) }}",
    "{{ '-5'.zfill(4) }}|{{ 'a'.ljust(3,'*') }}|{{ 'a'.rjust(3) }}",
    "{{ 'ab'.center(5,'*') }}|{{ 'ab'.center(6,'*') }}|{{ 'abc'|center(8) }}",
    "{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}|{{ 'a1'.isalnum() }}",
    "{{ ' '.isspace() }}|{{ 'AB'.isupper() }}|{{ 'ab'.islower() }}",
    "{{ ''.isdigit() }}",
    "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb\\n\\nc'|indent(2,true) }}|{{ 'a\\nb\\n\\nc'|indent(2,true,true) }}",
    "{{ 'a\\nb'|indent('--') }}|{{ 'a\\n'|indent }}|{{ ''|indent(2,true) }}",
    '{% generation %}a{% set q=1 %}{% endgeneration %}{{ q }}',
    '{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}',
    "{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns['x'] }}{{ ns.q }}",
    '{% set d2 = {} %}{% set d2.x = 1 %}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = [3,4] %}{{ a }}{{ b }}',
    '{% set a, b = [1] %}',
    '{% for a, (b, c) in [(1,(2,3))] %}{{a}}{{b}}{{c}}{% endfor %}',
    '{% if l and not e or n %}y{% elif t %}z{% else %}w{% endif %}',
    "{{ 'a' if e }}|{{ ('a' if e) is defined }}",
    '{{ l is sequence }}|{{ d is mapping }}|{{ d is sequence }}',
    '{{ s is sequence }}|{{ s is iterable }}|{{ n is none }}',
    '{{ t is boolean }}|{{ t is true }}|{{ e is false }}',
    '{{ undef is sequence }}|{{ undef is iterable }}',
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %B %A %a %j %y %I %p %-d %e %%') }}",
    "{{ raise_exception('no ' ~ i) }}",
    '{{ l + [1] }}|{{ (1,)+(2,) }}|{{ [1]*3 }}',
    "{{ 'ab'*2 }}|{{ 3*'x' }}|{{ 'a'*-1 }}",
    '{{ l + (1,) }}',
    "{{ 'a' + 1 }}",
    '{{ undef + 1 }}',
    '{{ undef.x }}',
    '{{ 1/0 }}',
    '{{ l|abs }}',
    '{{ neg|abs }}|{{ -2.5|abs }}|{{ +3 }}',
    '{{ - -3 }}|{{ not true }}|{{ true + true }}',
    '{{ not not 1 }}',
    "{{ [1,2,3,][1] }}|{{ {'a':1,}['a'] }}|{{ (1,2,) }}",
    '{{ 1, 2 }}',
    "{{ d['a'][1]['x'] }}|{{ d.a[1].x }}|{{ d|attr('b') }}",
    "{{ m[0].role }}|{{ m[-1]['role'] }}|{{ m[9] }}",
    '{{ m[9] is defined }}',
    "{{ 'x'.__class__ }}",
    '{{ l is in [l] }}|{{ [] is sameas [] }}|{{ none is sameas none }}',
    '{{ \'\' is none }}|{{ "a" in d }}|{{ \'b\' in d }}',
    "{{ 3 in l }}|{{ 3 not in l }}|{{ 'üß' in s }}",
    '{{ l in d }}',
    '{% for x in n %}{% endfor %}',
    '{% for x in undef %}a{% else %}b{% endfor %}',
    '{% for x in 5 %}{% endfor %}',
    "{% include 'x' %}",
    "{{ namespace() }}|{{ [namespace(a='b')] }}|{{ [undef] }}",
    "{{ {'a':undef} }}|{{ [[]] }}|{{ [{}] }}",
    '{{ [()] }}',
    "{{ 'a'",
    "  ~ 'b' }}",
    '{{ "a\'b" }}|{{ \'a"b\' }}|{{ ["a\'b"] }}',
    '{{ ["\\u200b\\xa0\\x00\\t"] }}',
    '{% macro r(n) %}{{ n }}{% if n %}{{ r(n-1) }}{% endif %}{% endmacro %}{{ r(5) }}',
    '{% macro a() %}{{ later }}{% endmacro %}{{ a() }}{% set later = 1 %}{{ a() }}',
    '{% for i in [1,2] %}{% macro q() %}{{ i }}{% endmacro %}{{ q() }}{% endfor %}',
    '{% for i in [1,2] %}{% set k %}{{ i }}{{ loop.index }}{% endset %}{{ k }}{% endfor %}',
    '{% if true %}{% set z = 1 %}{% endif %}{{ z }}',
    '{% set x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}',
    '{% for i in [1,2] %}{% for j in [1,2] %}{{ loop.index }}{{ loop.last }}{% endfor %}{{ loop.index }}{% endfor %}',
    '{% set ns=namespace(n=0) %}{% for i in [1,2,3] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}',
    '{% set ns=namespace(n=0) %}{% for i in [1,2,3] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{{ loop.last }}{% endfor %}',
    "{{ l|join(', ', attribute='x') }}|{{ m|join('|', attribute='role') }}|{{ d|join }}",
    "{{ 'abc'|join('-') }}|{{ undef|join('-') }}",
    "{{ [1,[2,'x']]|string }}|{{ none|string }}|{{ 1.50|string }}",
    '{{ true|lower }}|{{ none|upper }}|{{ 5|length }}',
    '{{ 10 % 3.5 }}|{{ -7 // 2.0 }}|{{ 7.5 // 2 }}',
    '{{ 2 ** 0.5 }}|{{ 1e308 * 10 }}|{{ 3 - 5 }}',
    '{{ range(3)|list }}|{{ range(3)[1] }}|{{ range(10)[2:5]|list }}',
    '{{ range(5, 0, -2)|list }}|{{ range(0)|list }}|{{ 2 in range(3) }}',
    '{{ range(100001) }}',
    "{{ {'a': {'b': [1, (2, 'c')]}} }}",
    "{{ 'x' ~ -1 }}|{{ 'x' if not n else 'y' }}|{{ (n or 'z') and 5 }}",
    "{{ {} or [] or '' or 0 or none }}",
    '{{ l[1:]|first }}|{{ l[:-1]|last }}|{{ l[-1] }}',
    '{{ l[none:2] }}',
    '{% call undefinedmacro() %}{% endcall %}',
    "{{ 'a' is string and 'b' is not string }}|{{ 5 is not none and 5 > 3 }}|{{ x is not defined or y }}",
    "{{ 3 is divisibleby(3) }}|{{ 'a' is in(['a']) }}|{{ 2 is in [1,2] and true }}",
    "{{ [1,2]|map('abs')|sum + 1 }}|{{ 'a'|upper ~ 'b'|upper }}|{{ -1|abs }}",
    '{{ (-1)|abs }}',
    "{{ d.a|length == 2 }} {{ 'a' in d and d.a|length > 1 }}",
    "{{ '{:d}'.format(3.5) }}",
    "{{ 'a{}b'.format(none) }}|{{ '{}'.format([1]) }}|{{ '{x}'.format() }}",
    'a\n  {% if true %}\n  b\n  {% endif %}\nc\n',
    '  {% for i in [1,2] %}  \n  x{{ i }}\n  {% endfor %}\n\n',
    '\n\n{%- if true -%}\n\n x \n\n{%- endif -%}\n\n',
    'a\r\nb\r{{ 1 }}\r\n',
    '{# c #}\n{# d -#}\n e',
    '{% raw -%}\n x {% if %} {%- endraw %}\n y',
    '   {{ 1 }}\n   {%+ if 1 %}x{% endif %}\n',
    '{% set x = 1 %}\n\n{% set y = 2 %}\nz',
    'x\n\t {#- c -#} \n y',
    '{{ 1 -}}\n  b {{- 2 }}',
    "{%- set a = {'x': {'y': {}}} -%}{{a}}",
    '  {%- raw %}\n  a{% endraw %}',
    '\xa0{%- if 1 %}\u2003x{%- endif %}',
    '{% if 1 %}\n\n{% endif %}',
    '{%if 1%}a{%endif%}',
    '{{\'a\'}}{{"}}"}}{{ \'%}\' }}',
    "{{ '{{' }}",
    '{ {% if 1 %}}{% endif %}',
    '{{ {} }}',
    "{{ {'a':1}}}",
    '{%',
    '{{',
    '{{ 1 %}',
    '{% if 1 }}',
    '{% endif %}',
    '{% if %}x{% endif %}',
    '{% for %}',
    '{% set %}',
    '',
    '\n',
    '\n\n',
    'x\n\n',
]


class Generation(jinja2.ext.Extension):
    """{% generation %}, which only marks its text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", Generation])

    def tojson(x, ensure_ascii=False, indent=None, separators=None,
               sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = datetime.datetime.fromisoformat(NOW).strftime
    return made


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/chat_templates.json"
    made = environment()
    cases = []
    for template in CASES:
        case = {"template": template}
        try:
            case["text"] = made.from_string(template).render(**VARIABLES)
        except Exception:  # of any kind: the template is refused
            pass
        cases.append(case)
    variables = dict(VARIABLES, strftime_now=NOW)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"variables": variables, "cases": cases}, file, indent=1,
                  ensure_ascii=False)
        file.write("\n")
    refused = sum("text" not in case for case in cases)
    print(f"{path}: {len(cases)} cases, {refused} of them refused")


main()
