//! A measured number, or its absence.

use serde::{Deserialize, Serialize};

/// A finite number or none; NaN and the infinities become none.
///
/// An absent number is shown as `–` and is `null` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Option<f64>", into = "Option<f64>")]
pub struct Measurement(Option<f64>);

impl Measurement {
    pub const NONE: Self = Self(None);

    pub fn new(value: f64) -> Self {
        Self(value.is_finite().then_some(value))
    }

    pub fn get(self) -> Option<f64> {
        self.0
    }
}

impl From<f64> for Measurement {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<Option<f64>> for Measurement {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::NONE, Self::new)
    }
}

impl From<Measurement> for Option<f64> {
    fn from(reading: Measurement) -> Self {
        reading.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_finite_is_absent() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Measurement::new(value), Measurement::NONE);
            assert_eq!(Measurement::from(Some(value)), Measurement::NONE);
        }
        assert_eq!(Measurement::new(-0.5).get(), Some(-0.5));
    }
}
