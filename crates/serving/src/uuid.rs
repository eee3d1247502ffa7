//! UUIDs of pools, drives, volumes and snapshots.

use world::World;

/// A random UUID (RFC 9562, version 4).
pub fn random_uuid(world: &World) -> [u8; 16] {
    let mut bytes = [0; 16];
    world.fill_secret(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// The bytes of a UUID in its usual form.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let refused = || format!("{text:?} is no UUID");
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(refused());
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = str::from_utf8(pair).map_err(|_| refused())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| refused())?;
    }
    Ok(bytes)
}
