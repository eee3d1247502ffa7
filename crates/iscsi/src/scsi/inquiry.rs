//! INQUIRY: what a unit is (SPC-4, 6.6 and 7.8; SBC-3, 6.6).

use super::{
    copy_list::Designator,
    facts::{
        COMPARE_BLOCKS_MAX, Facts, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX, VENDOR, WRITE_SAME_BLOCKS_MAX, padded,
    },
    sense::{AdditionalSense, Sense},
    thresholds::SET_BYTES,
};

/// The pages of vital product data there are.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];

/// What is answered where there is no unit: it could not be connected (peripheral qualifier 3).
pub fn no_unit() -> Vec<u8> {
    let mut data = standard_of(0x7f, "", "");
    data[7] = 0;
    data
}

/// Standard inquiry data.
pub fn standard(facts: &Facts) -> Vec<u8> {
    let mut data = standard_of(0x00, &facts.product, &facts.revision);
    data[1] = if facts.is_removable { 0x80 } else { 0 };
    data
}

fn standard_of(device: u8, product: &str, revision: &str) -> Vec<u8> {
    // SPC-4; hierarchical addresses are understood; implicit ALUA, and copies between units; several initiators;
    // commands are queued.
    let mut data = vec![device, 0, 0x06, 0x12, 0, 0x18, 0x10, 0x02];
    data.extend(padded::<8>(VENDOR));
    data.extend(padded::<16>(product));
    data.extend(padded::<4>(revision));
    data.resize(58, 0);
    // SAM-5, iSCSI, SPC-4, SBC-3.
    for standard in [0x00a0_u16, 0x0960, 0x0460, 0x04c0] {
        data.extend(standard.to_be_bytes());
    }
    data.resize(96, 0);
    data[4] = (data.len() - 5) as u8;
    data
}

/// A page of vital product data; `target` is the name of the target the unit is asked through.
/// `has_thresholds`: initiators hear when what the unit shares with others runs low.
///
/// # Errors
///
/// There is no such page.
pub fn page(facts: &Facts, has_thresholds: bool, target: &str, page: u8) -> Result<Vec<u8>, Sense> {
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => facts.identity.digits().into_bytes(),
        0x83 => identification(facts, target),
        0x86 => extended(),
        0xb0 => limits(facts),
        0xb1 => characteristics(),
        0xb2 => provisioning(facts, has_thresholds),
        _ => return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB)),
    };
    let mut data = vec![0x00, page];
    data.extend((body.len() as u16).to_be_bytes());
    data.extend(body);
    Ok(data)
}

/// Whether `designator` is a name of the unit that page 83 says.
pub fn is_named(facts: &Facts, designator: &Designator) -> bool {
    let Designator { code_set, kind, bytes } = designator;
    match (code_set, kind) {
        (1, 0x03) => bytes[..] == facts.identity.naa(),
        (2, 0x01) => *bytes == facts.identity.vendor_name(),
        (1, 0x0a) => *bytes == facts.identity.uuid_designator(),
        _ => false,
    }
}

/// Names of the unit, and of the port it is asked through.
fn identification(facts: &Facts, target: &str) -> Vec<u8> {
    let mut data = Vec::new();
    let mut designator = |code_set: u8, kind: u8, bytes: &[u8]| {
        data.extend([code_set, kind, 0, bytes.len() as u8]);
        data.extend(bytes);
    };
    designator(1, 0x03, &facts.identity.naa());
    designator(2, 0x01, &facts.identity.vendor_name());
    designator(1, 0x0a, &facts.identity.uuid_designator());
    // Of the port, over iSCSI: its relative number, its group, its name.
    const PORT: u8 = 0x90;
    let port = facts.port.to_be_bytes();
    designator(0x51, PORT | 0x04, &[0, 0, port[0], port[1]]);
    designator(0x51, PORT | 0x05, &[0, 0, 0, 1]);
    let mut name = format!("{target},t,0x{:04x}", facts.port).into_bytes();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    designator(0x53, PORT | 0x08, &name);
    data
}

/// Extended inquiry data: no protection information; ordered and head of queue, simple tasks; no volatile cache that is not told.
fn extended() -> Vec<u8> {
    let mut data = vec![0; 60];
    data[1] = 0x07;
    data
}

/// Block limits.
fn limits(facts: &Facts) -> Vec<u8> {
    let mut data = vec![0; 60];
    // WSNZ: a WRITE SAME of no blocks is not one of all.
    data[0] = 0x01;
    data[1] = COMPARE_BLOCKS_MAX;
    let granularity = (facts.physical_bytes / facts.block_bytes) as u16;
    data[2..4].copy_from_slice(&granularity.to_be_bytes());
    let transfer = facts.transfer_blocks_max();
    data[4..8].copy_from_slice(&transfer.to_be_bytes());
    data[8..12].copy_from_slice(&(transfer / 32).to_be_bytes());
    if facts.is_thin {
        data[16..20].copy_from_slice(&UNMAP_BLOCKS_MAX.to_be_bytes());
        data[20..24].copy_from_slice(&UNMAP_RANGES_MAX.to_be_bytes());
        data[24..28].copy_from_slice(&u32::from(granularity).to_be_bytes());
        // UGAVALID: granules begin at block 0.
        data[28] = 0x80;
    }
    data[32..40].copy_from_slice(&u64::from(WRITE_SAME_BLOCKS_MAX).to_be_bytes());
    data
}

/// Block device characteristics: nothing rotates.
fn characteristics() -> Vec<u8> {
    let mut data = vec![0; 60];
    data[0..2].copy_from_slice(&1_u16.to_be_bytes());
    data
}

/// Logical block provisioning: UNMAP and WRITE SAME let blocks go, and those read as zeroes. If there are thresholds, what
/// they count in.
fn provisioning(facts: &Facts, has_thresholds: bool) -> Vec<u8> {
    match facts.is_thin {
        true => {
            let set = if has_thresholds { (SET_BYTES / u64::from(facts.block_bytes)).ilog2() } else { 0 };
            vec![set as u8, 0xe4, 0x02, 0]
        }
        false => vec![0, 0, 0, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::identity::Identity;

    fn facts(is_thin: bool) -> Facts {
        Facts {
            product: "VOLUME".to_owned(),
            revision: "0001".to_owned(),
            identity: Identity(*b"0123456789abcdef"),
            block_bytes: 512,
            physical_bytes: 4096,
            is_read_only: false,
            is_thin,
            is_removable: false,
            port: 1,
        }
    }

    #[test]
    fn standard_data_say_what_it_is() {
        facts(true).check();
        let data = standard(&facts(true));
        assert_eq!((data.len(), data[0], data[2], data[4]), (96, 0, 6, 91));
        assert_eq!(&data[8..36], b"SPINDLE VOLUME          0001");
        let none = no_unit();
        assert_eq!((none[0], none.len()), (0x7f, 96));
    }

    #[test]
    fn every_page_that_is_listed_is_there_and_says_how_long_it_is() {
        let facts = facts(true);
        let listed = page(&facts, false, "iqn.x", 0).unwrap();
        assert_eq!(listed[4..], PAGES);
        for code in 0..=255 {
            match page(&facts, false, "iqn.x", code) {
                Ok(data) => {
                    assert!(PAGES.contains(&code));
                    assert_eq!(data[1], code);
                    assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4);
                }
                Err(sense) => {
                    assert!(!PAGES.contains(&code));
                    assert_eq!(sense.additional, AdditionalSense::INVALID_FIELD_IN_CDB);
                }
            }
        }
    }

    #[test]
    fn designators_follow_each_other_to_the_end() {
        let data = page(&facts(true), false, "iqn.2026-11.test:t", 0x83).unwrap();
        let mut rest = &data[4..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let length = usize::from(rest[3]);
            kinds.push((rest[1] & 0x3f, rest[4..4 + length].to_vec()));
            rest = &rest[4 + length..];
        }
        let names: Vec<u8> = kinds.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(names, [0x03, 0x01, 0x0a, 0x14, 0x15, 0x18]);
        for (kind, bytes) in &kinds[..3] {
            let code_set = if *kind == 0x01 { 2 } else { 1 };
            assert!(is_named(&facts(true), &Designator { code_set, kind: *kind, bytes: bytes.clone() }));
        }
        assert!(kinds[5].1.starts_with(b"iqn.2026-11.test:t,t,0x0001\0") && kinds[5].1.len() % 4 == 0);
    }

    #[test]
    fn only_thin_units_unmap() {
        for is_thin in [false, true] {
            let limits = page(&facts(is_thin), false, "", 0xb0).unwrap();
            let unmap = u32::from_be_bytes(limits[20..24].try_into().unwrap());
            assert_eq!(unmap > 0, is_thin);
            assert_eq!(page(&facts(is_thin), false, "", 0xb2).unwrap()[5] != 0, is_thin);
            assert_eq!(u16::from_be_bytes([limits[6], limits[7]]), 8, "granules of 4 KiB");
        }
    }
}
