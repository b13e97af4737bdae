"""From which point on the order of the data no longer matters: in words and as a figure."""

from sweep.experiment import Recipe
from sweep.graph.results import Row
from sweep.report.rewinding import instabilities
from sweep.report.words import lead


def test_of_instability_the_point_is_named_from_which_on_it_is_small():
    measured = [Row("", "instability", 0, k, instability=one) for k, one in
                (("0", 0.8), ("500it", 0.01), ("1ep", 0.021), ("2ep", 0.006))]  # fmt: skip
    assert lead(measured, []).startswith("The dense network is stable from 2ep on (under 2 percentage points of error")
    assert lead(measured, []).endswith("80.0 from 0, 1.0 from 500it, 2.1 from 1ep, 0.6 from 2ep.")
    twice = [*measured, Row("", "instability", 1, "0", instability=0.7)]
    assert "2 seeds): 75.0 from 0, 1.0 from 500it (1 of 2 seeds), 2.1 from 1ep (1 of 2 seeds)" in lead(twice, [])
    assert "is not stable from any point measured" in lead(measured[:1], [])
    late = [Row("", "instability", 0, k, instability=one) for k, one in (("0", 0.8), ("1ep", 0.2), ("2000it", 0.01))]
    assert lead(late, [], step=lambda at: at.step(Recipe(), 390)).startswith(
        "The dense network is stable from 2000it on"
    )
    assert lead([Row("", "ticket", 0, "0"), *measured], []).startswith("No ticket is trained yet. The dense network")
    sparse = Row("", "instability", 0, "0", quantile=0.8, method="lamp", instability=0.004)
    assert lead([sparse, *measured], []).endswith(
        "0.6 from 2ep. The ticket of lamp q0.8 is stable from 0 on (1 seed): 0.4 from 0."
    )


def test_a_point_that_was_not_measured_leaves_a_gap_in_its_line():
    def at(k, one, **ticket):
        return Row("", "instability", 0, k, instability=one, **ticket)

    sparse = {"method": "lamp", "quantile": 0.8}
    rows = [at("0", 0.8), at("1ep", 0.2), at("2ep", 0.01), at("0", 0.7, **sparse), at("2ep", 0.01, **sparse)]
    drawn = instabilities(rows).to_dict()["layer"][0]["data"]["values"]
    (line,) = {point["line"] for point in drawn} - {"dense network"}
    of_ticket = {point["point"]: point["instability"] for point in drawn if point["line"] == line}
    assert of_ticket == {"0": 70.0, "1ep": None, "2ep": 1.0} and line == "ticket of lamp q0.8"
    assert instabilities([Row("", "ticket", 0, "0")]) is None
