from sagehen.services.sagemaker.hosting.reconciler.draining import Draining


def test_an_instance_is_called_while_any_of_its_columns_has_requests():
    requests = {1: 2, 4: 1}
    draining = Draining(9.0, lambda column: requests.get(column, 0))
    columns = {"idle": (0,), "one": (1,), "direct": (3, 4), "none": ()}
    assert draining.called(columns) == {"one", "direct"}


def test_in_a_cluster_the_nodes_say_which_instances_have_requests():
    asked = []

    def on_nodes(instance_ids):
        asked.append(set(instance_ids))
        return frozenset({"there"})

    draining = Draining(9.0, lambda column: 1, on_nodes)
    assert draining.called({"here": (0,), "there": (1,)}) == {"there"}
    assert asked == [{"here", "there"}]


def test_each_instance_is_logged_once_and_counted_if_it_was_cut_off(caplog):
    caplog.set_level("INFO")
    draining = Draining(9.0)
    draining.note("e", ["i1", "i2", "i3"], [])
    draining.note("e", ["i2", "i3"], ["i1"])
    draining.note("e", ["i3"], ["i1", "i2"])
    draining.note("e", [], [])
    assert draining.hits == 2
    logged = [(record.action, record.instance) for record in caplog.records]
    assert logged == [
        ("draining", "i1"),
        ("draining", "i2"),
        ("draining", "i3"),
        ("drain_cut_off", "i1"),
        ("drain_cut_off", "i2"),
    ]
    assert "9 s are over" in caplog.text
