//! Operations common to all quantities.

/// A kind of number: a finite `f64` that is not negative, with comparison, sums, and multiples.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $symbol:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// None at all.
            pub const ZERO: Self = Self(0.0);

            /// `value` of them.
            pub fn new(value: f64) -> Self {
                assert!(value.is_finite() && value >= 0.0, "no quantity: {value} {}", $symbol);
                Self(value)
            }

            /// The bare number.
            pub fn get(self) -> f64 {
                self.0
            }

            /// Unit symbol behind the number.
            pub const SYMBOL: &str = $symbol;
        }

        impl std::ops::Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self::new(self.0 + other.0)
            }
        }

        impl std::ops::Mul<f64> for $name {
            type Output = Self;

            fn mul(self, times: f64) -> Self {
                Self::new(self.0 * times)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::ZERO, |sum, one| sum + one)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let written = super::shown(self.0);
                match $symbol {
                    "" => f.write_str(&written),
                    symbol => write!(f, "{written} {symbol}"),
                }
            }
        }
    };
}

pub(crate) use quantity;
