//! Text keys of login and text requests (RFC 7143, 6.1): `key=value`, each followed by a zero byte.

/// Longest key name (RFC 7143, 6.1).
pub const KEY_BYTES_MAX: usize = 63;
/// Longest value, unless its key says otherwise (RFC 7143, 6.1).
pub const VALUE_BYTES_MAX: usize = 8192;
/// Most pairs one text may have.
pub const PAIRS_MAX: usize = 128;

pub type Pair = (String, String);

/// Parses a text; `None` if it is malformed or has more than [`PAIRS_MAX`] pairs.
pub fn read(text: &[u8]) -> Option<Vec<Pair>> {
    read_up_to(PAIRS_MAX, text)
}

/// Parses a text; `None` if it is malformed or has more than `pairs_max` pairs.
pub fn read_up_to(pairs_max: usize, text: &[u8]) -> Option<Vec<Pair>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    // Some initiators pad with zeroes behind the last pair.
    let text = text.strip_suffix(&[0])?;
    let mut pairs = Vec::new();
    for line in text.split(|&byte| byte == 0).filter(|line| !line.is_empty()) {
        let line = std::str::from_utf8(line).ok()?;
        let (key, value) = line.split_once('=')?;
        let is_key = |key: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+@#/:".contains(&byte);
            (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(plain)
        };
        if !is_key(key) || value.len() > VALUE_BYTES_MAX || pairs.len() == pairs_max {
            return None;
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Some(pairs)
}

pub fn write<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text.extend(format!("{}={}", key.as_ref(), value.as_ref()).into_bytes());
        text.push(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_parse_as_written() {
        let pairs =
            [("InitiatorName", "iqn.2026-11.test:a"), ("AuthMethod", "CHAP,None"), ("CHAP_C", "0x=1")];
        let text = write(pairs);
        let read_back = read(&text).unwrap();
        assert_eq!(write(read_back.iter().map(|(key, value)| (key, value))), text);
        assert_eq!(read_back[2], ("CHAP_C".to_owned(), "0x=1".to_owned()), "a value may have it, too");
        assert_eq!(read(b""), Some(Vec::new()));
        assert_eq!(read(b"a=\0\0\0"), Some(vec![("a".to_owned(), String::new())]));
    }

    #[test]
    fn malformed_texts_are_refused() {
        let long = format!("{}=1\0", "k".repeat(64));
        let many = "a=1\0".repeat(PAIRS_MAX + 1);
        for text in [&b"a=1"[..], b"a\0", b"=1\0", b"a b=1\0", b"\xff=1\0", long.as_bytes(), many.as_bytes()]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
        let huge = write([("a", "v".repeat(VALUE_BYTES_MAX + 1))]);
        assert_eq!(read(&huge), None);
    }
}
