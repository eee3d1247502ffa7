use expect_test::expect;
use report::json::{self, ReadError};
use report::{
    Axis, Cell, Document, KeyValues, LineChart, Mark, Meta, Section, Table, TimeSeries, Unit, Verdict,
    VerdictOutcome,
};

use crate::small;

#[test]
fn the_field_names_are_those_other_programs_rely_on() {
    let mut document = Document::new("t", "", Meta::default());
    document.verdict =
        Some(Verdict { outcome: VerdictOutcome::Pass, class: "smoke".to_owned(), headline: "h".to_owned() });
    document.section(
        Section::new("s", "")
            .block(
                KeyValues::default()
                    .row("size", Cell::bytes(u64::MAX))
                    .row("rate", Cell::number(f64::NAN, "pages/s", 1))
                    .row("good", Mark::NotJudged),
            )
            .block(
                LineChart::new("c", Axis::new("latency", Unit::Milliseconds))
                    .series(TimeSeries::new("reads", [(0.0, 1.5), (15.0, f64::NAN)])),
            ),
    );
    expect![[r#"
        {
         "format": "spindle-report",
         "version": 1,
         "document": {
          "title": "t",
          "subtitle": "",
          "meta": {
           "generator": "",
           "created_utc": "",
           "machine": "",
           "seed": null,
           "command": null
          },
          "verdict": {
           "outcome": "pass",
           "class": "smoke",
           "headline": "h"
          },
          "highlights": [],
          "findings": [],
          "sections": [{
           "title": "s",
           "intro": "",
           "blocks": [{
            "kind": "key_values",
            "rows": [{
             "key": "size",
             "value": {
              "kind": "bytes",
              "bytes": 18446744073709551615
             },
             "note": ""
            }, {
             "key": "rate",
             "value": {
              "kind": "number",
              "value": null,
              "unit": "pages/s",
              "decimals": 1
             },
             "note": ""
            }, {
             "key": "good",
             "value": {
              "kind": "mark",
              "mark": "not_judged"
             },
             "note": ""
            }]
           }, {
            "kind": "line_chart",
            "title": "c",
            "y": {
             "label": "latency",
             "unit": "ms"
            },
            "series": [{
             "name": "reads",
             "points": [[0.0, 1.5], [15.0, null]]
            }],
            "limits": [],
            "events": []
           }]
          }]
         }
        }
    "#]]
    .assert_eq(&json::render(&document));
}

#[test]
fn a_document_round_trips() {
    let document = small();
    assert_eq!(json::parse(&json::render(&document)).unwrap(), document);
    // Doubles whose shortest decimal form a careless parser rounds wrongly.
    let hard = [0.1 + 0.2, 1.0 / 3.0, 5e-324, f64::MAX, 9_007_199_254_740_992.0, 122.416_294_033_786_58];
    let samples = hard.iter().enumerate().map(|(index, value)| (index as f64 * 0.1, *value));
    let chart = LineChart::new("c", Axis::new("y", Unit::One)).series(TimeSeries::new("hard", samples));
    let mut document = Document::new("t", "", Meta::default());
    document.section(Section::new("s", "").block(chart));
    assert_eq!(json::parse(&json::render(&document)).unwrap(), document);
}

#[test]
fn other_texts_are_rejected_with_their_kind() {
    assert!(matches!(json::parse("{"), Err(ReadError::Malformed(_))));
    assert!(matches!(json::parse("{}"), Err(ReadError::NotAReport)));
    assert!(matches!(json::parse(r#"{"format": "other", "version": 1}"#), Err(ReadError::NotAReport)));
    let newer = r#"{"format": "spindle-report", "version": 2, "document": "of a shape not known yet"}"#;
    assert!(matches!(json::parse(newer), Err(ReadError::UnknownVersion { found: 2 })));
}

#[test]
fn a_stored_document_that_breaks_an_invariant_is_refused() {
    let mut document = Document::new("t", "", Meta::default());
    let table = Table::new("", [report::Column::text("a")]).row([Cell::text("only-cell")]);
    document.section(Section::new("s", "").block(table));
    let ragged = json::render(&document).replace("\"rows\": [[{", "\"rows\": [[{\"kind\": \"empty\"}, {");
    let error = json::parse(&ragged).unwrap_err();
    assert!(error.to_string().contains("a row of 2 cells in a table of 1 columns"), "{error}");
}
