//! Reads and writes a second, of hosts and of drives.

use super::quantity::quantity;

quantity!(
    /// Reads and writes a second as a host asks for them.
    HostIops,
    "IOPS"
);

quantity!(
    /// Reads and writes a second as drives do them, redundancy included.
    DriveIops,
    "drive IOPS"
);

quantity!(
    /// A part of a whole, 1 being all of it.
    Share,
    ""
);

impl Share {
    pub const ALL: Self = Self(1.0);

    /// `percent` of a hundred.
    pub fn percent(percent: f64) -> Self {
        Self::new(percent / 100.0)
    }

    /// The rest of the whole; zero if this exceeds it.
    pub fn rest(self) -> Self {
        Self::new((1.0 - self.0).max(0.0))
    }
}

impl HostIops {
    /// Drive IOPS where one host write becomes `write_penalty` drive I/Os (RAID 1: 2, RAID 5: 4).
    pub fn on_drives(self, read_share: Share, write_penalty: f64) -> DriveIops {
        let writes = read_share.rest().get();
        DriveIops::new(self.get() * ((1.0 - writes) + writes * write_penalty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_of_a_host_is_two_of_a_mirror_and_four_of_raid_5() {
        let asked = HostIops::new(1000.0);
        assert_eq!(asked.on_drives(Share::percent(75.0), 2.0), DriveIops::new(1250.0));
        assert_eq!(asked.on_drives(Share::percent(75.0), 4.0), DriveIops::new(1750.0));
        assert_eq!(asked.on_drives(Share::ALL, 4.0), DriveIops::new(1000.0));
    }
}
