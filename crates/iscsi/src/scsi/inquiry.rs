//! INQUIRY data and vital product data (SPC-4, 6.6 and 7.8; SBC-3, 6.6).

use super::{
    copy_list::Designator,
    properties::{
        COMPARE_BLOCKS_MAX, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX, UnitProperties, VENDOR,
        WRITE_SAME_BLOCKS_MAX, padded,
    },
    sense::{AdditionalSense, Sense},
    thresholds::SET_BYTES,
};

/// Supported VPD pages.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];

/// Standard INQUIRY data of a LUN without a unit (peripheral qualifier 3).
pub fn no_unit() -> Vec<u8> {
    let mut data = standard_of(0x7f, "", "");
    data[7] = 0;
    data
}

pub fn standard(properties: &UnitProperties) -> Vec<u8> {
    let mut data = standard_of(0x00, &properties.product, &properties.revision);
    data[1] = if properties.is_removable { 0x80 } else { 0 };
    data
}

fn standard_of(device: u8, product: &str, revision: &str) -> Vec<u8> {
    // SPC-4, HISUP, implicit ALUA and 3PC, MULTIP, CMDQUE.
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

/// VPD page `page`. `target` is the name of the target the unit is accessed through; `has_thresholds` reports
/// threshold sets in page B2h.
///
/// # Errors
///
/// The page is not supported.
pub fn page(
    properties: &UnitProperties,
    has_thresholds: bool,
    target: &str,
    page: u8,
) -> Result<Vec<u8>, Sense> {
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => properties.identity.digits().into_bytes(),
        0x83 => identification(properties, target),
        0x86 => extended(),
        0xb0 => limits(properties),
        0xb1 => characteristics(),
        0xb2 => provisioning(properties, has_thresholds),
        _ => return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB)),
    };
    let mut data = vec![0x00, page];
    data.extend((body.len() as u16).to_be_bytes());
    data.extend(body);
    Ok(data)
}

/// True if page 83h has this designator.
pub fn is_named(properties: &UnitProperties, designator: &Designator) -> bool {
    let Designator { code_set, kind, bytes } = designator;
    match (code_set, kind) {
        (1, 0x03) => bytes[..] == properties.identity.naa(),
        (2, 0x01) => *bytes == properties.identity.vendor_name(),
        (1, 0x0a) => *bytes == properties.identity.uuid_designator(),
        _ => false,
    }
}

/// Page 83h: designators of the unit, then of the target port.
fn identification(properties: &UnitProperties, target: &str) -> Vec<u8> {
    let mut data = Vec::new();
    let mut designator = |code_set: u8, kind: u8, bytes: &[u8]| {
        data.extend([code_set, kind, 0, bytes.len() as u8]);
        data.extend(bytes);
    };
    designator(1, 0x03, &properties.identity.naa());
    designator(2, 0x01, &properties.identity.vendor_name());
    designator(1, 0x0a, &properties.identity.uuid_designator());
    // PIV and association 1: relative target port, target port group, SCSI name.
    const PORT: u8 = 0x90;
    let port = properties.port.to_be_bytes();
    designator(0x51, PORT | 0x04, &[0, 0, port[0], port[1]]);
    designator(0x51, PORT | 0x05, &[0, 0, 0, 1]);
    let mut name = format!("{target},t,0x{:04x}", properties.port).into_bytes();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    designator(0x53, PORT | 0x08, &name);
    data
}

/// Page 86h: no protection information; head of queue, ordered and simple task attributes.
fn extended() -> Vec<u8> {
    let mut data = vec![0; 60];
    data[1] = 0x07;
    data
}

/// Page B0h.
fn limits(properties: &UnitProperties) -> Vec<u8> {
    let mut data = vec![0; 60];
    // WSNZ: WRITE SAME rejects a block count of zero.
    data[0] = 0x01;
    data[1] = COMPARE_BLOCKS_MAX;
    let granularity = (properties.physical_bytes / properties.block_bytes) as u16;
    data[2..4].copy_from_slice(&granularity.to_be_bytes());
    let transfer = properties.transfer_blocks_max();
    data[4..8].copy_from_slice(&transfer.to_be_bytes());
    data[8..12].copy_from_slice(&(transfer / 32).to_be_bytes());
    if properties.is_thin {
        data[16..20].copy_from_slice(&UNMAP_BLOCKS_MAX.to_be_bytes());
        data[20..24].copy_from_slice(&UNMAP_RANGES_MAX.to_be_bytes());
        data[24..28].copy_from_slice(&u32::from(granularity).to_be_bytes());
        // UGAVALID, with an UNMAP GRANULARITY ALIGNMENT of 0.
        data[28] = 0x80;
    }
    data[32..40].copy_from_slice(&u64::from(WRITE_SAME_BLOCKS_MAX).to_be_bytes());
    data
}

/// Page B1h: MEDIUM ROTATION RATE 1, a non-rotating medium.
fn characteristics() -> Vec<u8> {
    let mut data = vec![0; 60];
    data[0..2].copy_from_slice(&1_u16.to_be_bytes());
    data
}

/// Page B2h: UNMAP and WRITE SAME deallocate, deallocated blocks read as zeroes; THRESHOLD EXPONENT with
/// thresholds.
fn provisioning(properties: &UnitProperties, has_thresholds: bool) -> Vec<u8> {
    if properties.is_thin {
        let set = if has_thresholds { (SET_BYTES / u64::from(properties.block_bytes)).ilog2() } else { 0 };
        vec![set as u8, 0xe4, 0x02, 0]
    } else {
        vec![0, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::identity::UnitIdentity;

    fn properties(is_thin: bool) -> UnitProperties {
        UnitProperties {
            product: "VOLUME".to_owned(),
            revision: "0001".to_owned(),
            identity: UnitIdentity(*b"0123456789abcdef"),
            block_bytes: 512,
            physical_bytes: 4096,
            is_read_only: false,
            is_thin,
            is_removable: false,
            port: 1,
        }
    }

    #[test]
    fn standard_inquiry_data_describe_the_unit() {
        properties(true).check();
        let data = standard(&properties(true));
        assert_eq!((data.len(), data[0], data[2], data[4]), (96, 0, 6, 91));
        assert_eq!(&data[8..36], b"SPINDLE VOLUME          0001");
        let none = no_unit();
        assert_eq!((none[0], none.len()), (0x7f, 96));
    }

    #[test]
    fn every_listed_page_exists_and_states_its_length() {
        let properties = properties(true);
        let listed = page(&properties, false, "iqn.x", 0).unwrap();
        assert_eq!(listed[4..], PAGES);
        for code in 0..=255 {
            match page(&properties, false, "iqn.x", code) {
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
    fn page_83_holds_all_designators() {
        let data = page(&properties(true), false, "iqn.2026-11.test:t", 0x83).unwrap();
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
            assert!(is_named(&properties(true), &Designator { code_set, kind: *kind, bytes: bytes.clone() }));
        }
        assert!(kinds[5].1.starts_with(b"iqn.2026-11.test:t,t,0x0001\0") && kinds[5].1.len() % 4 == 0);
    }

    #[test]
    fn only_thin_units_unmap() {
        for is_thin in [false, true] {
            let limits = page(&properties(is_thin), false, "", 0xb0).unwrap();
            let unmap = u32::from_be_bytes(limits[20..24].try_into().unwrap());
            assert_eq!(unmap > 0, is_thin);
            assert_eq!(page(&properties(is_thin), false, "", 0xb2).unwrap()[5] != 0, is_thin);
            assert_eq!(u16::from_be_bytes([limits[6], limits[7]]), 8, "granules of 4 KiB");
        }
    }
}
