//! Limits and reserve of a volume, as arguments.

use crate::quantity::parse_size;
use array::format::BLOCK_BYTES;
use clap::Args;
use serving::pool::limits::LimitChange;
use world::ByteCount;

/// The most MiB a second that can be set: the pool counts KiB in 32 bits.
const MBPS_MAX: u32 = u32::MAX >> 10;

/// Limits as they are given on the command line; one that is not given stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct VolumeLimits {
    /// Most space that the volume and its snapshots may take, a multiple of 4 KiB; `none` for no limit
    #[arg(long, value_name = "SIZE|none", value_parser = parse_bound)]
    pub limit: Option<ByteCount>,

    /// Space of the pool reserved for the volume, a multiple of 4 KiB; `none` for no reserve
    #[arg(long, value_name = "SIZE|none", value_parser = parse_bound)]
    pub reserve: Option<ByteCount>,

    /// Most operations a second; `none` for no limit
    #[arg(long, value_name = "N|none", value_parser = |text: &str| parse_rate(text, u32::MAX))]
    pub iops: Option<u32>,

    /// Most MiB a second, reads and writes together; `none` for no limit
    #[arg(long, value_name = "N|none", value_parser = |text: &str| parse_rate(text, MBPS_MAX))]
    pub mbps: Option<u32>,
}

impl VolumeLimits {
    pub fn change(&self) -> LimitChange {
        LimitChange {
            reserve: self.reserve,
            limit: self.limit,
            iops_max: self.iops,
            kib_per_second_max: self.mbps.map(|mbps| mbps << 10),
        }
    }
}

/// Reads `none`, which is 0, or a size of whole blocks.
fn parse_bound(text: &str) -> Result<ByteCount, String> {
    if text == "none" {
        return Ok(ByteCount(0));
    }
    match parse_size(text)? {
        ByteCount(0) => Err("nothing at all; say none for no bound".to_owned()),
        size if !size.0.is_multiple_of(BLOCK_BYTES as u64) => {
            Err(format!("{text} is no multiple of 4 KiB; volumes take whole blocks"))
        }
        size => Ok(size),
    }
}

/// Reads `none`, which is 0, or a number from 1 on.
fn parse_rate(text: &str, most: u32) -> Result<u32, String> {
    match text {
        "none" => Ok(0),
        text => match text.parse() {
            Ok(rate) if (1..=most).contains(&rate) => Ok(rate),
            _ => Err(format!("{text:?} is no number from 1 to {most}; say none for no limit")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_no_bound_and_zero_is_refused() {
        assert_eq!(parse_bound("none"), Ok(ByteCount(0)));
        assert_eq!(parse_bound("4MiB"), Ok(ByteCount(4 << 20)));
        assert_eq!((parse_rate("none", 9), parse_rate("9", 9)), (Ok(0), Ok(9)));
        for (bound, story) in [("0", "say none"), ("1000", "4 KiB"), ("much", "not a size")] {
            let refused = parse_bound(bound).unwrap_err();
            assert!(refused.contains(story), "{bound}: {refused}");
        }
        for rate in ["0", "10", "-1", "1.5", ""] {
            assert!(parse_rate(rate, 9).is_err(), "{rate}");
        }
    }

    #[test]
    fn megabytes_are_counted_in_kib() {
        let said = VolumeLimits { limit: Some(ByteCount(0)), mbps: Some(3), ..VolumeLimits::default() };
        let change = LimitChange {
            limit: Some(ByteCount(0)),
            kib_per_second_max: Some(3072),
            ..LimitChange::default()
        };
        assert_eq!(said.change(), change);
    }
}
