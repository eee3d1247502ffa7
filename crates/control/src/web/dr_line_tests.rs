//! Tests of the line to a paired site.

use super::{
    ApiState,
    caller::Caller,
    dr_sites::{link_of, site_of},
    problem::ApiProblem,
};
use crate::{
    dr::line_test::{LINE_TEST_CONNECTIONS_MAX, LINE_TEST_SPAN, LineTest, LineTestOrder},
    journal::tokens::CallerRole,
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use replication::link::{LinkPathFigures, PathMeasurement, RateFigures, RoundTripFigures};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// A test of the line to make.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLineTestBody {
    /// Time of all measurements together, about.
    #[schema(minimum = 1, maximum = 60)]
    pub seconds: f64,
    /// Connections of the measurements with several; as many as replication uses if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub connections: Option<u16>,
}

/// The line to another site, as it was measured. Rates count frames, without what TLS and TCP add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LineTestRow {
    /// Name of the other site.
    pub site: String,
    /// Connections of the measurements with several.
    pub connections: u16,
    /// Connections that replication uses.
    pub replication_connections: u16,
    /// The addresses of the other site, each measured alone.
    pub paths: Vec<LinePathRow>,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinePathRow {
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<LinePathFigures>,
    /// Reason for which it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinePathFigures {
    pub round_trip_idle: LineRoundTrip,
    /// While all connections send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_sending: Option<LineRoundTrip>,
    /// While all connections receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_receiving: Option<LineRoundTrip>,
    /// To the other site.
    pub sent: LineRate,
    /// From the other site.
    pub received: LineRate,
}

/// Round trips of small frames.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LineRoundTrip {
    pub median_ms: f64,
    pub p99_ms: f64,
    /// Round trips that were measured.
    pub count: u64,
}

/// Rates in one direction, in millions of bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LineRate {
    /// Of one connection alone.
    pub one_mbit: f64,
    /// Of all connections together.
    pub all_mbit: f64,
}

impl LineRoundTrip {
    fn of(figures: &RoundTripFigures) -> Self {
        let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
        Self { median_ms: ms(figures.median), p99_ms: ms(figures.percentile_99), count: figures.count as u64 }
    }
}

impl LineRate {
    fn of(rate: RateFigures) -> Self {
        let mbit = |bytes: u64| (bytes as f64 * 8.0 / 1000.0).round() / 1000.0;
        Self { one_mbit: mbit(rate.of_one), all_mbit: mbit(rate.of_all) }
    }
}

impl LinePathFigures {
    fn of(figures: &LinkPathFigures) -> Self {
        Self {
            round_trip_idle: LineRoundTrip::of(&figures.idle),
            round_trip_sending: figures.loaded_sending.as_ref().map(LineRoundTrip::of),
            round_trip_receiving: figures.loaded_receiving.as_ref().map(LineRoundTrip::of),
            sent: LineRate::of(figures.sent),
            received: LineRate::of(figures.received),
        }
    }
}

impl LineTestRow {
    fn of(site: &str, test: &LineTest) -> Self {
        let path = |path: &PathMeasurement| LinePathRow {
            address: path.address.clone(),
            figures: path.figures.as_ref().ok().map(LinePathFigures::of),
            not_measured: path.figures.as_ref().err().cloned(),
        };
        Self {
            site: site.to_owned(),
            connections: test.connections,
            replication_connections: test.replication_connections,
            paths: test.paths.iter().map(path).collect(),
        }
    }
}

/// Measures the line to a site: round trips idle and under load, and rates each way. Replication goes on, and shares the
/// line with the test. One test is under way at a time.
#[utoipa::path(post, path = "/v1/dr/sites/{name}/link-tests", tag = "dr", params(("name" = String, Path, description = "Name of the site")), request_body = NewLineTestBody,
    responses((status = 200, description = "The figures", body = LineTestRow), (status = "default", response = ApiProblem)))]
pub(super) async fn make(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(NewLineTestBody { seconds, connections }): Json<NewLineTestBody>,
) -> Result<(StatusCode, Json<LineTestRow>), ApiProblem> {
    caller.need(CallerRole::Operate)?;
    caller.need_all_pools()?;
    let (shortest, longest) = LINE_TEST_SPAN;
    if !(shortest.as_secs_f64()..=longest.as_secs_f64()).contains(&seconds) {
        let (shortest, longest) = (shortest.as_secs(), longest.as_secs());
        return Err(ApiProblem::bad_request(format!("a test takes {shortest} to {longest} seconds"), ""));
    }
    if connections.is_some_and(|count| !(1..=LINE_TEST_CONNECTIONS_MAX).contains(&count)) {
        let text = format!("a test has 1 to {LINE_TEST_CONNECTIONS_MAX} connections");
        return Err(ApiProblem::bad_request(text, ""));
    }
    let link = link_of(&api)?;
    let site = site_of(&link.look(), &name)?;
    let order = LineTestOrder { span: Duration::from_secs_f64(seconds), connections };
    let test = link.test_line(site, order).await?;
    Ok((StatusCode::OK, Json(LineTestRow::of(&name, &test))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_megabits_and_a_path_that_was_not_measured_has_its_reason() {
        let trips = RoundTripFigures {
            median: Duration::from_micros(24_120),
            percentile_99: Duration::from_micros(25_004),
            count: 40,
        };
        let rate = RateFigures { of_one: 4_750_000, of_all: 5_000_000 };
        let figures = LinkPathFigures {
            idle: trips,
            loaded_sending: None,
            loaded_receiving: Some(trips),
            sent: rate,
            received: rate,
        };
        let measured = PathMeasurement { address: "a:1".to_owned(), figures: Ok(figures) };
        let lost = PathMeasurement { address: "b:1".to_owned(), figures: Err("refused".to_owned()) };
        let test = LineTest { connections: 2, replication_connections: 2, paths: vec![measured, lost] };
        let text = serde_json::to_string(&LineTestRow::of("denver", &test)).unwrap();
        let trip = r#"{"median_ms":24.12,"p99_ms":25.004,"count":40}"#;
        let rate = r#"{"one_mbit":38.0,"all_mbit":40.0}"#;
        let expected = format!(
            r#"{{"site":"denver","connections":2,"replication_connections":2,"paths":[{{"address":"a:1","figures":{{"round_trip_idle":{trip},"round_trip_receiving":{trip},"sent":{rate},"received":{rate}}}}},{{"address":"b:1","not_measured":"refused"}}]}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<LineTestRow>(&text).unwrap(), LineTestRow::of("denver", &test));
    }
}
