from sagehen.services.sagemaker.hosting.reconciler.draining import Draining


def test_an_instance_is_called_while_any_of_its_columns_has_requests():
    requests = {1: 2, 4: 1}
    draining = Draining(9.0, lambda column: requests.get(column, 0))
    columns = {"idle": (0,), "one": (1,), "direct": (3, 4), "none": ()}
    assert draining.called(columns) == {"one", "direct"}


def test_each_instance_that_was_cut_off_counts_once():
    draining = Draining(9.0)
    draining.note_cut_off("e", ["i1", "i2"])
    draining.note_cut_off("e", ["i1"])
    draining.note_cut_off("e", [])
    assert draining.hits == 2
