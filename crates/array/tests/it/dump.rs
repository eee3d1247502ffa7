//! Golden images as text.

/// Sixteen bytes a line; lines of zeroes are left out, and the last line is the length.
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{:06x}  {}\n", index * 16, hex.join(" ")));
    }
    text.push_str(&format!("{:06x}\n", bytes.len()));
    text
}

/// The bytes of a dump. As in `hexdump`, a line of `*` repeats the line before up to the next offset.
pub fn undump(text: &str) -> Vec<u8> {
    let hex = |word: &str| usize::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word:?} is not hex"));
    let mut bytes = Vec::new();
    let mut repeats = false;
    for line in text.lines() {
        if line == "*" {
            repeats = true;
            continue;
        }
        let mut words = line.split_whitespace();
        let at = hex(words.next().expect("each line has an offset"));
        while repeats && bytes.len() < at {
            bytes.extend_from_within(bytes.len() - 16..);
        }
        repeats = false;
        bytes.resize(at, 0);
        bytes.extend(words.map(|word| hex(word) as u8));
    }
    bytes
}
