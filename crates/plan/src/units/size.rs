//! Sizes: in 1024s as mail servers count, and in 1000s as drives are sold.

use super::quantity::quantity;
use thiserror::Error;

quantity!(Kib, "KB");

quantity!(Mib, "MB");

quantity!(
    /// 1024³ bytes: the GB of a mailbox quota.
    Gib,
    "GB"
);

quantity!(
    /// 1000³ bytes: the GB on a drive's label.
    SoldGb,
    "GB as sold"
);

const KIB: f64 = 1024.0;

impl Mib {
    /// The same size in GB.
    pub fn gib(self) -> Gib {
        Gib::new(self.get() / KIB)
    }
}

impl Gib {
    /// The same size in MB.
    pub fn mib(self) -> Mib {
        Mib::new(self.get() * KIB)
    }

    /// The same size on a drive's label.
    pub fn as_sold(self) -> SoldGb {
        SoldGb::new(self.get() * (KIB * KIB * KIB / 1e9))
    }

    /// The next whole number of them.
    pub fn ceil(self) -> Self {
        Self::new(self.get().ceil())
    }
}

impl SoldGb {
    /// The same size as mail servers count.
    pub fn gib(self) -> Gib {
        Gib::new(self.get() * (1e9 / (KIB * KIB * KIB)))
    }
}

/// Why a size was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// It has no unit, and a size without one may mean anything.
    #[error("{0:?} has no unit; write KB, MB, GB or TB behind it, such as 2GB")]
    NoUnit(String),
    /// The unit is one of bits.
    #[error("{text:?}: {unit} are bits; sizes are bytes, such as 2GB")]
    Bits {
        /// As it was written.
        text: String,
        unit: String,
    },
    /// The unit is none.
    #[error(
        "{text:?}: {unit:?} is not a unit of size; use KB, MB, GB or TB (or KiB, MiB, GiB, TiB, which are the same here)"
    )]
    Unit {
        /// As it was written.
        text: String,
        unit: String,
    },
    /// It does not begin with a plain number.
    #[error("{0:?} is not a size; write a number and a unit, such as 2GB")]
    NoNumber(String),
}

/// Units of size and the bytes of each, in lower case. Mail is counted in 1024s, however it is written.
const UNITS: [(&str, f64); 9] = [
    ("b", 1.0),
    ("kb", KIB),
    ("kib", KIB),
    ("mb", KIB * KIB),
    ("mib", KIB * KIB),
    ("gb", KIB * KIB * KIB),
    ("gib", KIB * KIB * KIB),
    ("tb", KIB * KIB * KIB * KIB),
    ("tib", KIB * KIB * KIB * KIB),
];

/// Reads a size of mail such as `2GB`, `75 KB` or `1.5TiB`; without a unit it is refused.
pub fn parse_size(text: &str) -> Result<Mib, SizeError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim());
    let number: f64 = number.parse().map_err(|_| SizeError::NoNumber(text.to_owned()))?;
    if unit.is_empty() {
        return Err(SizeError::NoUnit(text.to_owned()));
    }
    if unit.len() == 2 && unit.ends_with('b') && unit.starts_with(['K', 'M', 'G', 'T']) {
        return Err(SizeError::Bits { text: text.to_owned(), unit: unit.to_owned() });
    }
    let lower = unit.to_ascii_lowercase();
    match UNITS.iter().find(|(name, _)| *name == lower) {
        Some((_, bytes)) if (number * bytes).is_finite() => Ok(Mib::new(number * bytes / (KIB * KIB))),
        Some(_) => Err(SizeError::NoNumber(text.to_owned())),
        None => Err(SizeError::Unit { text: text.to_owned(), unit: unit.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<f64, &str>) {
        let read = parse_size(text).map(Mib::get).map_err(|error| error.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn sizes_of_mail_count_in_1024s_however_they_are_written() {
        check("2GB", Ok(2048.0));
        check("2 GiB", Ok(2048.0));
        check("75KB", Ok(75.0 / 1024.0));
        check("1.5tib", Ok(1.5 * 1024.0 * 1024.0));
        check("1048576 B", Ok(1.0));
    }

    #[test]
    fn a_size_without_a_unit_or_in_bits_is_refused() {
        check("2", Err("\"2\" has no unit; write KB, MB, GB or TB behind it, such as 2GB"));
        check("2Gb", Err("\"2Gb\": Gb are bits; sizes are bytes, such as 2GB"));
        check("-2GB", Err("\"-2GB\" is not a size; write a number and a unit, such as 2GB"));
        check("much", Err("\"much\" is not a size; write a number and a unit, such as 2GB"));
        check("", Err("\"\" is not a size; write a number and a unit, such as 2GB"));
        check(
            "2 GX",
            Err(
                "\"2 GX\": \"GX\" is not a unit of size; use KB, MB, GB or TB (or KiB, MiB, GiB, TiB, which are the same here)",
            ),
        );
    }

    #[test]
    fn a_drive_of_500_gb_holds_466_of_mail() {
        assert_eq!(SoldGb::new(500.0).gib().get().round(), 466.0);
        let there_and_back = Gib::new(123.456).as_sold().gib().get();
        assert!((there_and_back - 123.456).abs() < 1e-9);
    }
}
