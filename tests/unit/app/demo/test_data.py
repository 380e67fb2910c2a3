from support.frameworks import Late

data = Late("sagehen.app.demo.data")


def test_every_patient_is_in_one_cohort():
    cohorts = data.load_cohorts()
    assert len(cohorts) == 4
    assert sum(len(cohort.labels) + len(cohort.held_out_labels) for cohort in cohorts) == 442


def test_held_out_patients_were_not_trained_on():
    for cohort in data.load_cohorts():
        trained = {tuple(row) for row in cohort.rows.tolist()}
        assert not trained & set(cohort.held_out_rows)


def test_perfect_predictions_have_no_error():
    cohort = data.load_cohorts()[0]
    assert cohort.mean_error(cohort.held_out_labels) == 0
    assert cohort.baseline_error > 0
