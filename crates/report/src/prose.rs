//! Numbers in sentences, formatted as in tables.

/// Formats with `decimals` digits and thousands separators: `26,427`, `1,041.0`; a dash if not finite.
pub fn number(value: f64, decimals: u8) -> String {
    if value.is_finite() {
        crate::quantity::number(value, decimals)
    } else {
        crate::quantity::ABSENT.to_owned()
    }
}

/// Formats a count with a noun, given in the singular: `1 run`, `12 mailboxes`, `1,250 records`.
pub fn counted(count: u64, noun: &str) -> String {
    assert!(!noun.is_empty(), "something is counted");
    let ending = match noun {
        _ if count == 1 => "",
        noun if noun.ends_with(['s', 'x']) => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", crate::quantity::grouped(&count.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_one_is_singular() {
        assert_eq!(counted(1, "run"), "1 run");
        assert_eq!(counted(0, "run"), "0 runs");
        assert_eq!(counted(4_000, "mailbox"), "4,000 mailboxes");
        assert_eq!(counted(u64::MAX, "record"), "18,446,744,073,709,551,615 records");
    }

    #[test]
    fn thousands_are_grouped_and_unknown_numbers_are_dashes() {
        assert_eq!(number(26_427.4, 0), "26,427");
        assert_eq!(number(998.04, 1), "998.0");
        assert_eq!(number(f64::NAN, 1), "–");
    }
}
