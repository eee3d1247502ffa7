//! Sense data (SPC-4, 4.5).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    NoSense = 0x0,
    NotReady = 0x2,
    /// The medium cannot be read or written.
    MediumError = 0x3,
    HardwareError = 0x4,
    /// The CDB or its parameter data are wrong.
    IllegalRequest = 0x5,
    /// The unit's state has changed since the nexus's last command.
    UnitAttention = 0x6,
    /// The unit is write-protected.
    DataProtect = 0x7,
    AbortedCommand = 0xb,
    /// Compared data differ.
    Miscompare = 0xe,
    /// EXTENDED COPY did not complete.
    CopyAborted = 0xa,
}

/// Additional sense code (ASC) and qualifier (ASCQ), by the names of SPC-4, annex F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdditionalSense(pub u8, pub u8);

impl AdditionalSense {
    /// NO ADDITIONAL SENSE INFORMATION.
    pub const NONE: Self = Self(0x00, 0x00);
    pub const OPERATION_IN_PROGRESS: Self = Self(0x00, 0x16);
    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    pub const BECOMING_READY: Self = Self(0x04, 0x01);
    /// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    pub const MANUAL_INTERVENTION_REQUIRED: Self = Self(0x04, 0x03);
    pub const WRITE_ERROR: Self = Self(0x0c, 0x00);
    /// COPY TARGET DEVICE NOT REACHABLE.
    pub const COPY_TARGET_NOT_REACHABLE: Self = Self(0x0d, 0x02);
    /// INCORRECT COPY TARGET DEVICE TYPE.
    pub const INCORRECT_COPY_TARGET: Self = Self(0x0d, 0x03);
    /// INVALID FIELD IN COMMAND INFORMATION UNIT.
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: Self = Self(0x0e, 0x03);
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1a, 0x00);
    pub const MISCOMPARE_DURING_VERIFY: Self = Self(0x1d, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPERATION_CODE: Self = Self(0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self(0x26, 0x00);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Self = Self(0x26, 0x04);
    /// TOO MANY TARGET DESCRIPTORS.
    pub const TOO_MANY_TARGETS: Self = Self(0x26, 0x06);
    /// UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
    pub const UNSUPPORTED_TARGET: Self = Self(0x26, 0x07);
    /// TOO MANY SEGMENT DESCRIPTORS.
    pub const TOO_MANY_SEGMENTS: Self = Self(0x26, 0x08);
    /// UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
    pub const UNSUPPORTED_SEGMENT: Self = Self(0x26, 0x09);
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    /// LOGICAL UNIT SOFTWARE WRITE PROTECTED.
    pub const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub const RESET_OCCURRED: Self = Self(0x29, 0x00);
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    pub const MEDIUM_MAY_HAVE_CHANGED: Self = Self(0x28, 0x00);
    pub const MODE_PARAMETERS_CHANGED: Self = Self(0x2a, 0x01);
    pub const RESERVATIONS_PREEMPTED: Self = Self(0x2a, 0x03);
    pub const RESERVATIONS_RELEASED: Self = Self(0x2a, 0x04);
    pub const REGISTRATIONS_PREEMPTED: Self = Self(0x2a, 0x05);
    /// REPORTED LUNS DATA HAS CHANGED.
    pub const REPORTED_LUNS_CHANGED: Self = Self(0x3f, 0x0e);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Self = Self(0x2a, 0x09);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const COMMANDS_CLEARED: Self = Self(0x2f, 0x00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    /// THIN PROVISIONING SOFT THRESHOLD REACHED.
    pub const SOFT_THRESHOLD_REACHED: Self = Self(0x38, 0x07);
    pub const MEDIUM_NOT_PRESENT: Self = Self(0x3a, 0x00);
    pub const DATA_PHASE_ERROR: Self = Self(0x4b, 0x00);
    /// MEDIUM REMOVAL PREVENTED.
    pub const REMOVAL_PREVENTED: Self = Self(0x53, 0x02);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const INSUFFICIENT_REGISTRATIONS: Self = Self(0x55, 0x04);
}

/// Sense of a CHECK CONDITION status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    pub key: SenseKey,
    pub additional: AdditionalSense,
    /// INFORMATION: a logical block address, or the offset of the first byte that miscompares.
    pub information: Option<u64>,
    /// The byte of the CDB that is in error, for the field pointer.
    pub field: Option<u16>,
}

impl Sense {
    /// Length in fixed format.
    pub const FIXED_BYTES: usize = 18;

    /// Without INFORMATION and field pointer.
    pub fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self { key, additional, information: None, field: None }
    }

    /// ILLEGAL REQUEST.
    pub fn illegal(additional: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, additional)
    }

    /// INVALID FIELD IN CDB with a field pointer to byte `index`.
    pub fn invalid_byte(index: usize) -> Self {
        Self { field: Some(index as u16), ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB) }
    }

    /// SKSV, C/D and FIELD POINTER (SPC-4, 4.5.2.4.2).
    fn field_pointer(self) -> Option<[u8; 3]> {
        let [high, low] = self.field?.to_be_bytes();
        Some([0xc0, high, low])
    }

    /// Fixed format. INFORMATION of more than 32 bits is left out.
    pub fn fixed(self) -> [u8; Self::FIXED_BYTES] {
        let mut bytes = [0; Self::FIXED_BYTES];
        bytes[0] = 0x70;
        if let Some(information) = self.information.and_then(|information| u32::try_from(information).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[2] = self.key as u8;
        bytes[7] = (Self::FIXED_BYTES - 8) as u8;
        (bytes[12], bytes[13]) = (self.additional.0, self.additional.1);
        if let Some(pointer) = self.field_pointer() {
            bytes[15..18].copy_from_slice(&pointer);
        }
        bytes
    }

    /// Descriptor format, with information and sense key specific descriptors where they apply.
    pub fn descriptors(self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key as u8, self.additional.0, self.additional.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend([0x00, 0x0a, 0x80, 0x00]);
            bytes.extend(information.to_be_bytes());
        }
        if let Some(pointer) = self.field_pointer() {
            bytes.extend([0x02, 0x06, 0, 0]);
            bytes.extend(pointer);
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_and_descriptor_format_agree() {
        let sense = Sense {
            key: SenseKey::Miscompare,
            additional: AdditionalSense::MISCOMPARE_DURING_VERIFY,
            information: Some(0x0102),
            field: None,
        };
        let fixed = sense.fixed();
        assert_eq!((fixed[0], fixed[2], fixed[7], fixed[12], fixed[13]), (0xf0, 0x0e, 10, 0x1d, 0));
        assert_eq!(fixed[3..7], [0, 0, 1, 2]);
        let descriptors = sense.descriptors();
        assert_eq!(descriptors[..8], [0x72, 0x0e, 0x1d, 0, 0, 0, 0, 12]);
        assert_eq!(descriptors[8..], [0, 0x0a, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let nowhere = Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        assert_eq!((nowhere.fixed()[0], nowhere.descriptors().len()), (0x70, 8));
        let far = Sense { information: Some(1 << 40), ..nowhere };
        assert_eq!(far.fixed()[0], 0x70, "there is no room for it");
        let pointed = Sense::invalid_byte(2);
        assert_eq!(pointed.fixed()[15..18], [0xc0, 0, 2]);
        assert_eq!(pointed.descriptors()[7..], [8, 0x02, 0x06, 0, 0, 0xc0, 0, 2, 0]);
    }
}
