//! The end of a certificate's validity (RFC 5280, 4.1.2.5), which rustls does not tell.

use rustls::pki_types::{CertificateDer, pem::PemObject};

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Of the version, which may be left out.
const CONTEXT_0: u8 = 0xa0;

/// Seconds since 1970, UTC, at which the first certificate of a PEM file ends; `None` if it cannot be read.
pub fn certificate_end(pem: &[u8]) -> Option<i64> {
    let certificate = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    let (mut fields, _) = value(&certificate, SEQUENCE)?;
    (fields, _) = value(fields, SEQUENCE)?;
    if fields.first() == Some(&CONTEXT_0) {
        fields = skip(fields)?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = skip(fields)?;
    }
    let (validity, _) = value(fields, SEQUENCE)?;
    let end = skip(validity)?;
    let (digits, year_digits) = match *end.first()? {
        UTC_TIME => (value(end, UTC_TIME)?.0, 2),
        GENERALIZED_TIME => (value(end, GENERALIZED_TIME)?.0, 4),
        _ => return None,
    };
    seconds(std::str::from_utf8(digits).ok()?, year_digits)
}

/// The value of an element with this tag, and what follows it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if *bytes.first()? != tag {
        return None;
    }
    let (length, header) = match *bytes.get(1)? {
        short @ ..0x80 => (usize::from(short), 2),
        long => {
            let count = usize::from(long & 0x7f);
            if count > 4 {
                return None;
            }
            let length =
                bytes.get(2..2 + count)?.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
            (length, 2 + count)
        }
    };
    Some((bytes.get(header..header.checked_add(length)?)?, &bytes[header + length..]))
}

fn skip(bytes: &[u8]) -> Option<&[u8]> {
    value(bytes, *bytes.first()?).map(|(_, rest)| rest)
}

/// The seconds of `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(text: &str, year_digits: usize) -> Option<i64> {
    let digits = text.strip_suffix('Z')?;
    if digits.len() != year_digits + 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, count: usize| digits[from..from + count].parse::<i64>().ok();
    let year = match (number(0, year_digits)?, year_digits) {
        (year, 2) if year < 50 => 2000 + year,
        (year, 2) => 1900 + year,
        (year, _) => year,
    };
    let at = |place: usize| number(year_digits + 2 * place, 2);
    let (month, day, hour, minute, second) = (at(0)?, at(1)?, at(2)?, at(3)?, at(4)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 of the Gregorian calendar, with years that begin in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_forms_are_read() {
        assert_eq!(seconds("700101000000Z", 2), Some(0));
        assert_eq!(seconds("261127123456Z", 2), Some(1_795_782_896));
        assert_eq!(seconds("20500101000000Z", 4), Some(2_524_608_000));
        assert_eq!(seconds("20000229235959Z", 4), Some(951_868_799));
        for wrong in ["", "Z", "2611271234Z", "26112712345xZ", "261327123456Z", "261127123456+0100"] {
            assert_eq!(seconds(wrong, 2), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        for wrong in [String::new(), pem(""), pem("MIIB"), pem("MIQAAAAA"), pem("/////w==")] {
            assert_eq!(certificate_end(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
