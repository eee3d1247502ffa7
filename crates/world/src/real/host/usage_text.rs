//! Uses of a block device, for messages.

use super::DeviceUse;

/// `mounted at /home, part of md0`; `None` if the device is free.
pub fn usages_text(usages: &[DeviceUse]) -> Option<String> {
    let text = |usage: &DeviceUse| match usage {
        DeviceUse::Mounted(point) => format!("mounted at {}", point.display()),
        DeviceUse::Swap => "used as swap".to_owned(),
        DeviceUse::HeldBy(holder) => format!("part of {holder}"),
    };
    (!usages.is_empty()).then(|| usages.iter().map(text).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_a_device_are_named_together() {
        assert_eq!(usages_text(&[]), None);
        assert_eq!(
            usages_text(&[DeviceUse::Mounted("/home".into()), DeviceUse::HeldBy("md0".to_owned())]),
            Some("mounted at /home, part of md0".to_owned())
        );
    }
}
