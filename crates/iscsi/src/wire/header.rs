//! Basic header segments (RFC 7143, 11.3 to 11.19): one structure for each PDU type, laid out as on the wire.
//! Fields carry the standard's names: `itt` is the Initiator Task Tag, `ttt` the Target Transfer Tag.

use super::pdu::HEADER_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian as be};

#[allow(missing_docs, reason = "the names are those of the standard")]
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const READY_TO_TRANSFER: u8 = 0x31;
    pub const ASYNC_MESSAGE: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The I bit of the first byte: immediate delivery.
pub const IMMEDIATE: u8 = 0x40;
/// The F bit of the second byte.
pub const FINAL: u8 = 0x80;
/// The reserved value of an Initiator Task Tag or Target Transfer Tag.
pub const NO_TAG: u32 = u32::MAX;

/// StatSN, ExpCmdSN and MaxCmdSN, which every PDU of a target carries.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are those of the standard")]
pub struct SequenceNumbers {
    pub stat_sn: be::U32,
    pub exp_cmd_sn: be::U32,
    pub max_cmd_sn: be::U32,
}

/// Byte offset of the [`SequenceNumbers`] in a target's header.
pub const SEQUENCE_NUMBERS_OFFSET: usize = 24;

pub trait PduHeader: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Clone {
    const OPCODE: u8;

    /// Reads the header of a PDU that has this opcode.
    fn of(header: &[u8; HEADER_BYTES]) -> Self {
        assert_eq!(header[0] & 0x3f, Self::OPCODE, "it is one of these");
        Self::read_from_bytes(header).expect("each header has as many bytes")
    }

    /// Encodes the header and sets its opcode; a set I bit stays.
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes: [u8; HEADER_BYTES] =
            self.as_bytes().try_into().expect("each header has as many bytes");
        bytes[0] = (bytes[0] & IMMEDIATE) | Self::OPCODE;
        bytes
    }

    /// All fields zero.
    fn empty() -> Self {
        Self::new_zeroed()
    }
}

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            #[allow(missing_docs, reason = "the names are those of the standard")]
            pub struct $name {
                pub first: u8,
                pub flags: u8,
                $($(#[$field_doc])* pub $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == HEADER_BYTES);

            impl PduHeader for $name {
                const OPCODE: u8 = opcode::$opcode;
            }
        )*

        #[cfg(test)]
        const ALL: &[(&str, u8)] = &[$((stringify!($name), opcode::$opcode)),*];
    };
}

headers! {
    /// SCSI Command. Flags: F, R, W, and the task attribute.
    ScsiCommand = SCSI_COMMAND {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        expected_transfer_length: be::U32,
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        cdb: [u8; 16],
    }
    /// SCSI Response. Flags: residual overflow and underflow.
    ScsiResponse = SCSI_RESPONSE {
        response: u8,
        status: u8,
        lengths: [u8; 4],
        reserved: [u8; 8],
        itt: be::U32,
        snack_tag: be::U32,
        numbers: SequenceNumbers,
        exp_data_sn: be::U32,
        bidirectional_residual: be::U32,
        residual: be::U32,
    }
    /// Task Management Function Request. Flags: the function.
    TaskManagement = TASK_MANAGEMENT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        referenced_task_tag: be::U32,
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        ref_cmd_sn: be::U32,
        exp_data_sn: be::U32,
        also_reserved: [u8; 8],
    }
    /// Task Management Function Response.
    TaskManagementResponse = TASK_MANAGEMENT_RESPONSE {
        response: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        itt: be::U32,
        more_reserved: [u8; 4],
        numbers: SequenceNumbers,
        still_reserved: [u8; 12],
    }
    /// SCSI Data-Out. Flags: F.
    DataOut = DATA_OUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        also_reserved: [u8; 4],
        exp_stat_sn: be::U32,
        more_reserved: [u8; 4],
        data_sn: be::U32,
        buffer_offset: be::U32,
        still_reserved: [u8; 4],
    }
    /// SCSI Data-In. Flags: F, A, overflow, underflow, S.
    DataIn = DATA_IN {
        reserved: u8,
        status: u8,
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        numbers: SequenceNumbers,
        data_sn: be::U32,
        buffer_offset: be::U32,
        residual: be::U32,
    }
    /// R2T: the target asks for data of a write.
    ReadyToTransfer = READY_TO_TRANSFER {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        numbers: SequenceNumbers,
        r2t_sn: be::U32,
        buffer_offset: be::U32,
        desired_length: be::U32,
    }
    /// Asynchronous Message.
    AsyncMessage = ASYNC_MESSAGE {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        no_itt: be::U32,
        also_reserved: [u8; 4],
        numbers: SequenceNumbers,
        async_event: u8,
        async_vcode: u8,
        parameters: [be::U16; 3],
        more_reserved: [u8; 4],
    }
    /// Text Request. Flags: F, C.
    Text = TEXT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        also_reserved: [u8; 16],
    }
    /// Text Response. Flags: F, C.
    TextResponse = TEXT_RESPONSE {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        numbers: SequenceNumbers,
        also_reserved: [u8; 12],
    }
    /// Login Request. Flags: T, C, CSG and NSG.
    Login = LOGIN {
        version_max: u8,
        version_min: u8,
        lengths: [u8; 4],
        isid: [u8; 6],
        tsih: be::U16,
        itt: be::U32,
        cid: be::U16,
        reserved: [u8; 2],
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        also_reserved: [u8; 16],
    }
    /// Login Response. Flags: T, C, CSG and NSG.
    LoginResponse = LOGIN_RESPONSE {
        version_max: u8,
        version_active: u8,
        lengths: [u8; 4],
        isid: [u8; 6],
        tsih: be::U16,
        itt: be::U32,
        reserved: [u8; 4],
        numbers: SequenceNumbers,
        status_class: u8,
        status_detail: u8,
        also_reserved: [u8; 10],
    }
    /// Logout Request. Flags: the reason.
    Logout = LOGOUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        itt: be::U32,
        cid: be::U16,
        more_reserved: [u8; 2],
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        still_reserved: [u8; 16],
    }
    LogoutResponse = LOGOUT_RESPONSE {
        response: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        itt: be::U32,
        more_reserved: [u8; 4],
        numbers: SequenceNumbers,
        still_reserved: [u8; 4],
        time_to_wait_s: be::U16,
        time_to_retain_s: be::U16,
        last_reserved: [u8; 4],
    }
    /// Reject. Its data segment is the header of the rejected PDU.
    Reject = REJECT {
        reason: u8,
        reserved: u8,
        lengths: [u8; 4],
        also_reserved: [u8; 8],
        no_itt: be::U32,
        more_reserved: [u8; 4],
        numbers: SequenceNumbers,
        data_sn: be::U32,
        still_reserved: [u8; 8],
    }
    NopOut = NOP_OUT {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        cmd_sn: be::U32,
        exp_stat_sn: be::U32,
        also_reserved: [u8; 16],
    }
    NopIn = NOP_IN {
        reserved: [u8; 2],
        lengths: [u8; 4],
        lun: [u8; 8],
        itt: be::U32,
        ttt: be::U32,
        numbers: SequenceNumbers,
        also_reserved: [u8; 12],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_has_its_own_opcode() {
        let mut opcodes: Vec<u8> = ALL.iter().map(|(_, opcode)| *opcode).collect();
        opcodes.sort_unstable();
        opcodes.dedup();
        assert_eq!(opcodes.len(), ALL.len());
    }

    #[test]
    fn a_command_header_matches_rfc_3720_appendix_b() {
        // RFC 3720, appendix B.4: an iSCSI SCSI Read (10) Command PDU.
        let header: [u8; HEADER_BYTES] = [
            0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
            0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        let command = ScsiCommand::of(&header);
        assert_eq!((command.itt.get(), command.expected_transfer_length.get()), (0x1400_0000, 0x400));
        assert_eq!((command.cmd_sn.get(), command.exp_stat_sn.get()), (0x14, 0x18));
        assert_eq!(command.cdb[..10], [0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(command.to_bytes(), header);
        let urgent = ScsiCommand { first: IMMEDIATE, ..ScsiCommand::empty() };
        assert_eq!(urgent.to_bytes()[0], 0x41);
    }
}
