//! The supported commands: their lengths, the bits of their CDBs that have a meaning, and their treatment
//! under reservations.
//!
//! One table serves decoding, REPORT SUPPORTED OPERATION CODES and the check that other bits are zero.

use super::{
    reservations::CommandAccess,
    sense::{AdditionalSense, Sense},
};

/// Operation codes and service actions, by the names SPC-4 and SBC-3 give them.
#[allow(missing_docs, reason = "the names are those of the standards")]
pub mod code {
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const PREVENT_ALLOW: u8 = 0x1e;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const WRITE_VERIFY_10: u8 = 0x2e;
    pub const VERIFY_10: u8 = 0x2f;
    pub const PRE_FETCH_10: u8 = 0x34;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const READ_DEFECT_DATA_10: u8 = 0x37;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const LOG_SENSE: u8 = 0x4d;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    pub const EXTENDED_COPY: u8 = 0x83;
    pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
    pub const READ_16: u8 = 0x88;
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    pub const WRITE_16: u8 = 0x8a;
    pub const ORWRITE_16: u8 = 0x8b;
    pub const WRITE_VERIFY_16: u8 = 0x8e;
    pub const VERIFY_16: u8 = 0x8f;
    pub const PRE_FETCH_16: u8 = 0x90;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
    pub const WRITE_VERIFY_12: u8 = 0xae;
    pub const VERIFY_12: u8 = 0xaf;
    pub const READ_DEFECT_DATA_12: u8 = 0xb7;

    /// Service action of SERVICE ACTION IN(16).
    pub const READ_CAPACITY_16: u16 = 0x10;
    /// Service action of SERVICE ACTION IN(16).
    pub const GET_LBA_STATUS: u16 = 0x12;
    /// Service action of EXTENDED COPY(LID1).
    pub const COPY_BY_SHORT_LIST: u16 = 0x00;
    /// Service action of RECEIVE COPY RESULTS.
    pub const COPY_STATUS: u16 = 0x00;
    /// Service action of RECEIVE COPY RESULTS.
    pub const COPY_OPERATING_PARAMETERS: u16 = 0x03;
    /// Service action of PERSISTENT RESERVE OUT.
    pub const PREEMPT_AND_ABORT: u8 = 0x05;
    /// Service action of MAINTENANCE IN.
    pub const REPORT_TARGET_PORT_GROUPS: u16 = 0x0a;
    /// Service action of MAINTENANCE IN.
    pub const REPORT_SUPPORTED_OPERATION_CODES: u16 = 0x0c;
    /// Service action of MAINTENANCE IN.
    pub const REPORT_SUPPORTED_TASK_MANAGEMENT: u16 = 0x0d;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedCommand {
    /// The operation code.
    pub code: u8,
    /// The low five bits of the second byte; `None` if the operation code has no service actions.
    pub service_action: Option<u16>,
    /// CDB usage data (SPC-4, 6.35.3): the operation code, then one byte for each byte of the CDB with ones
    /// where a bit has a meaning. Its length is the CDB's.
    pub usage: &'static [u8],
    pub what: CommandAccess,
}

/// Byte 1 of a read or write: DPO and FUA. RDPROTECT and WRPROTECT must be zero: protection information is
/// not supported.
const RW: u8 = 0x18;
/// Byte 1 of a verification: DPO, BYTCHK.
const VERIFY: u8 = 0x16;
/// Byte 1 of SYNCHRONIZE CACHE: IMMED and the obsolete SYNC_NV; both are ignored.
const SYNC: u8 = 0x06;
/// No bit of the CONTROL byte: NACA is not supported.
const CONTROL: u8 = 0;
const GROUP: u8 = 0x1f;

const fn plain(code: u8, what: CommandAccess, usage: &'static [u8]) -> SupportedCommand {
    SupportedCommand { code, service_action: None, usage, what }
}

const fn action(
    code: u8,
    service_action: u16,
    what: CommandAccess,
    usage: &'static [u8],
) -> SupportedCommand {
    SupportedCommand { code, service_action: Some(service_action), usage, what }
}

macro_rules! ten {
    ($code:expr, $flags:expr, $what:expr) => {
        plain($code, $what, &[$code, $flags, 255, 255, 255, 255, GROUP, 255, 255, CONTROL])
    };
}

macro_rules! twelve {
    ($code:expr, $flags:expr, $what:expr) => {
        plain($code, $what, &[$code, $flags, 255, 255, 255, 255, 255, 255, 255, 255, GROUP, CONTROL])
    };
}

macro_rules! sixteen {
    ($code:expr, $flags:expr, $what:expr) => {
        plain(
            $code,
            $what,
            &[$code, $flags, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, GROUP, CONTROL],
        )
    };
}

/// Sorted by operation code and service action.
pub static SUPPORTED_COMMANDS: &[SupportedCommand] = &[
    plain(code::TEST_UNIT_READY, CommandAccess::Inquire, &[code::TEST_UNIT_READY, 0, 0, 0, 0, CONTROL]),
    plain(code::REQUEST_SENSE, CommandAccess::Unrestricted, &[code::REQUEST_SENSE, 1, 0, 0, 255, CONTROL]),
    plain(code::READ_6, CommandAccess::Read, &[code::READ_6, 0x1f, 255, 255, 255, CONTROL]),
    plain(code::WRITE_6, CommandAccess::Write, &[code::WRITE_6, 0x1f, 255, 255, 255, CONTROL]),
    plain(code::INQUIRY, CommandAccess::Unrestricted, &[code::INQUIRY, 1, 255, 255, 255, CONTROL]),
    plain(code::MODE_SELECT_6, CommandAccess::Write, &[code::MODE_SELECT_6, 0x11, 0, 0, 255, CONTROL]),
    plain(code::RESERVE_6, CommandAccess::Unrestricted, &[code::RESERVE_6, 0, 0, 0, 0, CONTROL]),
    plain(code::RELEASE_6, CommandAccess::Unrestricted, &[code::RELEASE_6, 0, 0, 0, 0, CONTROL]),
    plain(code::MODE_SENSE_6, CommandAccess::Read, &[code::MODE_SENSE_6, 0x08, 255, 255, 255, CONTROL]),
    plain(code::START_STOP_UNIT, CommandAccess::Write, &[code::START_STOP_UNIT, 1, 0, 0x0f, 0xf7, CONTROL]),
    plain(code::PREVENT_ALLOW, CommandAccess::Write, &[code::PREVENT_ALLOW, 0, 0, 0, 3, CONTROL]),
    plain(
        code::READ_CAPACITY_10,
        CommandAccess::Inquire,
        &[code::READ_CAPACITY_10, 0, 255, 255, 255, 255, 0, 0, 1, CONTROL],
    ),
    ten!(code::READ_10, RW, CommandAccess::Read),
    ten!(code::WRITE_10, RW, CommandAccess::Write),
    ten!(code::WRITE_VERIFY_10, VERIFY, CommandAccess::Write),
    ten!(code::VERIFY_10, VERIFY, CommandAccess::Read),
    ten!(code::PRE_FETCH_10, 2, CommandAccess::Read),
    ten!(code::SYNCHRONIZE_CACHE_10, SYNC, CommandAccess::Write),
    plain(
        code::READ_DEFECT_DATA_10,
        CommandAccess::Inquire,
        &[code::READ_DEFECT_DATA_10, 0, 0x1f, 0, 0, 0, 0, 255, 255, CONTROL],
    ),
    ten!(code::WRITE_SAME_10, 0x18, CommandAccess::Write),
    plain(code::UNMAP, CommandAccess::Write, &[code::UNMAP, 1, 0, 0, 0, 0, GROUP, 255, 255, CONTROL]),
    plain(
        code::LOG_SENSE,
        CommandAccess::Inquire,
        &[code::LOG_SENSE, 0, 255, 255, 0, 255, 255, 255, 255, CONTROL],
    ),
    plain(
        code::MODE_SELECT_10,
        CommandAccess::Write,
        &[code::MODE_SELECT_10, 0x11, 0, 0, 0, 0, 0, 255, 255, CONTROL],
    ),
    plain(
        code::MODE_SENSE_10,
        CommandAccess::Read,
        &[code::MODE_SENSE_10, 0x18, 255, 255, 0, 0, 0, 255, 255, CONTROL],
    ),
    reserve_in(0),
    reserve_in(1),
    reserve_in(2),
    reserve_in(3),
    reserve_out(0),
    reserve_out(1),
    reserve_out(2),
    reserve_out(3),
    reserve_out(4),
    reserve_out(5),
    reserve_out(6),
    copying(code::EXTENDED_COPY, code::COPY_BY_SHORT_LIST),
    copying(code::RECEIVE_COPY_RESULTS, code::COPY_STATUS),
    copying(code::RECEIVE_COPY_RESULTS, code::COPY_OPERATING_PARAMETERS),
    sixteen!(code::READ_16, RW, CommandAccess::Read),
    plain(
        code::COMPARE_AND_WRITE,
        CommandAccess::Write,
        &[code::COMPARE_AND_WRITE, RW, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 255, GROUP, CONTROL],
    ),
    sixteen!(code::WRITE_16, RW, CommandAccess::Write),
    sixteen!(code::ORWRITE_16, RW, CommandAccess::Write),
    sixteen!(code::WRITE_VERIFY_16, VERIFY, CommandAccess::Write),
    sixteen!(code::VERIFY_16, VERIFY, CommandAccess::Read),
    sixteen!(code::PRE_FETCH_16, 2, CommandAccess::Read),
    sixteen!(code::SYNCHRONIZE_CACHE_16, SYNC, CommandAccess::Write),
    sixteen!(code::WRITE_SAME_16, 0x19, CommandAccess::Write),
    action(
        code::SERVICE_ACTION_IN_16,
        code::READ_CAPACITY_16,
        CommandAccess::Inquire,
        &[
            code::SERVICE_ACTION_IN_16,
            0x10,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            1,
            CONTROL,
        ],
    ),
    action(
        code::SERVICE_ACTION_IN_16,
        code::GET_LBA_STATUS,
        CommandAccess::Read,
        &[
            code::SERVICE_ACTION_IN_16,
            0x12,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            0,
            CONTROL,
        ],
    ),
    plain(
        code::REPORT_LUNS,
        CommandAccess::Unrestricted,
        &[code::REPORT_LUNS, 0, 255, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL],
    ),
    action(
        code::MAINTENANCE_IN,
        code::REPORT_TARGET_PORT_GROUPS,
        CommandAccess::Unrestricted,
        &[code::MAINTENANCE_IN, 0xea, 0, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL],
    ),
    action(
        code::MAINTENANCE_IN,
        code::REPORT_SUPPORTED_OPERATION_CODES,
        CommandAccess::Unrestricted,
        &[code::MAINTENANCE_IN, 0x0c, 0x87, 255, 255, 255, 255, 255, 255, 255, 0, CONTROL],
    ),
    action(
        code::MAINTENANCE_IN,
        code::REPORT_SUPPORTED_TASK_MANAGEMENT,
        CommandAccess::Unrestricted,
        &[code::MAINTENANCE_IN, 0x0d, 0x80, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL],
    ),
    twelve!(code::READ_12, RW, CommandAccess::Read),
    twelve!(code::WRITE_12, RW, CommandAccess::Write),
    twelve!(code::WRITE_VERIFY_12, VERIFY, CommandAccess::Write),
    twelve!(code::VERIFY_12, VERIFY, CommandAccess::Read),
    plain(
        code::READ_DEFECT_DATA_12,
        CommandAccess::Inquire,
        &[code::READ_DEFECT_DATA_12, 0x1f, 255, 255, 255, 255, 255, 255, 255, 255, 0, CONTROL],
    ),
];

/// EXTENDED COPY and RECEIVE COPY RESULTS: list identifier and allocation or parameter list length.
const fn copying(code: u8, service_action: u16) -> SupportedCommand {
    const COPY: &[u8] = &[code::EXTENDED_COPY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL];
    const RESULTS: [&[u8]; 4] = [
        &[code::RECEIVE_COPY_RESULTS, 0, 255, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL],
        &[],
        &[],
        &[code::RECEIVE_COPY_RESULTS, 3, 255, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, CONTROL],
    ];
    match code {
        code::EXTENDED_COPY => action(code, service_action, CommandAccess::Write, COPY),
        _ => action(code, service_action, CommandAccess::Inquire, RESULTS[service_action as usize]),
    }
}

const fn reserve_in(service_action: u16) -> SupportedCommand {
    const USAGE: [&[u8]; 4] = [
        &[code::PERSISTENT_RESERVE_IN, 0, 0, 0, 0, 0, 0, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_IN, 1, 0, 0, 0, 0, 0, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_IN, 2, 0, 0, 0, 0, 0, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_IN, 3, 0, 0, 0, 0, 0, 255, 255, CONTROL],
    ];
    action(
        code::PERSISTENT_RESERVE_IN,
        service_action,
        CommandAccess::Unrestricted,
        USAGE[service_action as usize],
    )
}

const fn reserve_out(service_action: u16) -> SupportedCommand {
    const USAGE: [&[u8]; 7] = [
        &[code::PERSISTENT_RESERVE_OUT, 0, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 1, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 2, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 3, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 4, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 5, 255, 0, 0, 255, 255, 255, 255, CONTROL],
        &[code::PERSISTENT_RESERVE_OUT, 6, 255, 0, 0, 255, 255, 255, 255, CONTROL],
    ];
    action(
        code::PERSISTENT_RESERVE_OUT,
        service_action,
        CommandAccess::Unrestricted,
        USAGE[service_action as usize],
    )
}

/// Entries with this operation code: none, one, or one for each service action.
pub fn of_code(code: u8) -> impl Iterator<Item = &'static SupportedCommand> {
    SUPPORTED_COMMANDS.iter().filter(move |known| known.code == code)
}

/// Finds the command in `cdb` and checks its reserved bits. A CDB field longer than the command is accepted.
///
/// # Errors
///
/// The command is not supported, or a reserved bit is set.
pub fn find(cdb: &[u8]) -> Result<&'static SupportedCommand, Sense> {
    let code = *cdb.first().ok_or(Sense::illegal(AdditionalSense::INVALID_OPERATION_CODE))?;
    if of_code(code).next().is_none() {
        return Err(Sense::illegal(AdditionalSense::INVALID_OPERATION_CODE));
    }
    let service_action = cdb.get(1).map(|byte| u16::from(byte & 0x1f));
    let known =
        of_code(code).find(|known| known.service_action.is_none() || known.service_action == service_action);
    let known = known.ok_or(Sense::invalid_byte(1))?;
    let cdb = cdb.get(..known.usage.len()).ok_or(Sense::invalid_byte(cdb.len()))?;
    // Operation code and service action matched the table.
    let means_nothing = |index: usize, byte: u8, usage: u8| {
        let usage = if index == 1 && known.service_action.is_some() { usage | 0x1f } else { usage };
        byte & !usage != 0
    };
    let mut bytes = cdb.iter().zip(known.usage).enumerate().skip(1);
    match bytes.find(|(index, (byte, usage))| means_nothing(*index, **byte, **usage)) {
        Some((strange, _)) => Err(Sense::invalid_byte(strange)),
        None => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_of_commands_is_consistent() {
        let mut seen = BTreeSet::new();
        for known in SUPPORTED_COMMANDS {
            assert!(seen.insert((known.code, known.service_action)), "{known:?} is there once");
            assert_eq!(known.usage[0], known.code, "{known:?}");
            // SAM-5, 5.2.2: the group code in the top three bits gives the length.
            let length = match known.code >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                _ => panic!("{known:?} is of no group"),
            };
            assert_eq!(known.usage.len(), length, "{known:?}");
            if let Some(action) = known.service_action {
                assert_eq!(u16::from(known.usage[1] & 0x1f), action, "{known:?}");
            }
            let is_alone = of_code(known.code).count() == 1;
            assert!(is_alone || known.service_action.is_some(), "{known:?}: how is it told from the others?");
        }
    }

    #[test]
    fn commands_are_found_and_reserved_bits_refused() {
        for known in SUPPORTED_COMMANDS {
            let mut cdb = vec![0; 16];
            cdb[0] = known.code;
            cdb[1] = known.service_action.unwrap_or(0) as u8;
            assert_eq!(find(&cdb), Ok(known));
            assert_eq!(find(&cdb[..known.usage.len()]), Ok(known), "as long as it is");
            let cut = known.usage.len() - 1;
            assert_eq!(find(&cdb[..cut]), Err(Sense::invalid_byte(cut)), "cut");
            // NACA and other unsupported bits.
            for (index, usage) in known.usage.iter().enumerate().skip(1) {
                for bit in (0..8).filter(|bit| usage & (1 << bit) == 0) {
                    if index == 1 && known.service_action.is_some() && bit < 5 {
                        continue;
                    }
                    let mut strange = cdb.clone();
                    strange[index] |= 1 << bit;
                    let invalid = Err(Sense::invalid_byte(index));
                    assert_eq!(find(&strange), invalid, "{known:?}: bit {bit} of byte {index}");
                }
            }
        }
        let unknown = Err(Sense::illegal(AdditionalSense::INVALID_OPERATION_CODE));
        assert_eq!(find(&[]), unknown);
        assert_eq!(find(&[0xff; 16]), unknown);
        assert!(find(&[code::MAINTENANCE_IN, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
