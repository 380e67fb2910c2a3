import pytest

from sagehen.base.user_code_errors import describe_exception, locate

FIRST = ["Traceback (most recent call last):", '  File "/opt/ml/code/early.py", line 9, in go']


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ([], ""),
        (
            ['  File "/home/i/ml/model/code/helpers/io.py", line 3, in read'],
            "helpers/io.py, line 3",
        ),
        (['File "/opt/program/predictor.py", line 12, in <module>'], "predictor.py, line 12"),
        (
            [
                '  File "/opt/ml/code/train.py", line 4, in main',
                '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 5, in load',
                '  File "/usr/lib/python3.11/json/decoder.py", line 6, in decode',
                '  File "<frozen importlib._bootstrap>", line 7, in _find',
            ],
            "train.py, line 4",
        ),
        (['  File "/usr/lib/python3.11/runpy.py", line 1, in run'], ""),
        ([*FIRST, "KeyError: 1", FIRST[0], '  File "late.py", line 2, in go'], "late.py, line 2"),
    ],
)
def test_the_place_is_the_last_frame_of_the_users_code(lines: list[str], place: str) -> None:
    assert locate(lines) == place


def test_a_syntax_error_is_where_it_is_even_in_a_library() -> None:
    file = "/venv/lib/python3.11/site-packages/old.py"
    above = [*FIRST, f'  File "{file}", line 3', "    print 1"]
    assert describe_exception("SyntaxError: invalid syntax", above) == (
        "SyntaxError: invalid syntax (old.py, line 3)"
    )


def test_a_missing_module_is_named_with_the_remedy() -> None:
    line = "ModuleNotFoundError: No module named 'catboost.core'"
    assert describe_exception(line, FIRST, "code/requirements.txt") == (
        f"{line} (early.py, line 9) (pack catboost beside the script, name its package in "
        "code/requirements.txt, or install it where Sagehen runs)"
    )
    assert describe_exception(line, []) == line
