//! One measured number, or the honest absence of one.

use serde::{Deserialize, Serialize};

/// A finite number, or none: what was not measured, NaN and the infinities are all "none".
///
/// Shown as `–` when absent; `null` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Option<f64>", into = "Option<f64>")]
pub struct Reading(Option<f64>);

impl Reading {
    /// Nothing was measured.
    pub const NONE: Self = Self(None);

    /// A reading of `value`; none if it is NaN or infinite.
    pub fn new(value: f64) -> Self {
        Self(value.is_finite().then_some(value))
    }

    /// The finite value, if there is one.
    pub fn get(self) -> Option<f64> {
        self.0
    }
}

impl From<f64> for Reading {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<Option<f64>> for Reading {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::NONE, Self::new)
    }
}

impl From<Reading> for Option<f64> {
    fn from(reading: Reading) -> Self {
        reading.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_absent() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Reading::new(value), Reading::NONE);
            assert_eq!(Reading::from(Some(value)), Reading::NONE);
        }
        assert_eq!(Reading::new(-0.5).get(), Some(-0.5));
    }
}
