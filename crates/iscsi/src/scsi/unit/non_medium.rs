//! Commands that do not access the medium: INQUIRY, MODE SENSE and MODE SELECT, capacity, log and reports.

use super::{LogicalUnit, ResponseData, ScsiRequest, UnitResult, be16, be32, list_of, parameters};
use crate::scsi::{
    commands::{SUPPORTED_COMMANDS, SupportedCommand, code, of_code},
    inquiry,
    mode::{self, BlockDescriptor, ModeListFormat, ModeSettings, PageControl},
    sense::{AdditionalSense, Sense, SenseKey},
};

impl LogicalUnit {
    pub(super) fn execute_non_medium(
        &self,
        known: &SupportedCommand,
        request: ScsiRequest<'_>,
    ) -> UnitResult<ResponseData> {
        let cdb = request.cdb;
        match known.code {
            code::REQUEST_SENSE => {
                let sense = self.take_attention(request.nexus);
                let sense = sense.unwrap_or(Sense::new(SenseKey::NoSense, AdditionalSense::NONE));
                let data = if cdb[1] & 1 == 1 { sense.descriptors() } else { sense.fixed().to_vec() };
                Ok(parameters(data, cdb[4].into()))
            }
            code::INQUIRY => {
                let data = match (cdb[1] & 1, cdb[2]) {
                    (0, 0) => inquiry::standard(&self.properties),
                    (0, _) => return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into()),
                    (_, page) => inquiry::page(&self.properties, self.watch.is_some(), request.target, page)?,
                };
                Ok(parameters(data, be16(&cdb[3..5])))
            }
            code::MODE_SENSE_6 => self.mode_sense(&request, cdb[4].into(), false),
            code::MODE_SENSE_10 => self.mode_sense(&request, be16(&cdb[7..9]), true),
            code::MODE_SELECT_6 => self.mode_select(&request, cdb[4].into(), false),
            code::MODE_SELECT_10 => self.mode_select(&request, be16(&cdb[7..9]), true),
            code::LOG_SENSE => self.log_sense(cdb),
            code::READ_CAPACITY_10 => self.read_capacity_10(cdb),
            code::READ_DEFECT_DATA_10 => Ok(parameters(no_defects(&[0, cdb[2]], 2), be16(&cdb[7..9]))),
            code::READ_DEFECT_DATA_12 => {
                Ok(parameters(no_defects(&[0, cdb[1]], 6), be32(&cdb[6..10]) as usize))
            }
            code::RECEIVE_COPY_RESULTS => self.copy_results(known, &request),
            code::SERVICE_ACTION_IN_16 => Ok(parameters(self.capacity(), be32(&cdb[10..14]) as usize)),
            code::REPORT_LUNS => report_luns(request.units, cdb),
            code::MAINTENANCE_IN => self.maintenance_in(known, cdb),
            code::PREVENT_ALLOW => Ok(self.prevent_allow(&request)),
            _ => Ok(ResponseData::None),
        }
    }

    fn mode_sense(&self, request: &ScsiRequest<'_>, room: usize, is_long: bool) -> UnitResult<ResponseData> {
        let cdb = request.cdb;
        let mode = self.mode.get();
        let mode = ModeSettings { is_read_only: mode.is_read_only || !request.may_write, ..mode };
        let has_none = cdb[1] & 0x08 != 0;
        let takes_long = is_long && cdb[1] & 0x10 != 0;
        let descriptor = BlockDescriptor {
            is_long: takes_long,
            blocks: self.blocks(),
            block_bytes: self.properties.block_bytes,
        };
        let form = ModeListFormat { is_long, descriptor: (!has_none).then_some(descriptor) };
        let page = (cdb[2] & 0x3f, cdb[3]);
        Ok(parameters(mode::sense(&mode, PageControl::of(cdb[2] >> 6), page, form)?, room))
    }

    fn mode_select(
        &self,
        request: &ScsiRequest<'_>,
        length: usize,
        is_long: bool,
    ) -> UnitResult<ResponseData> {
        // SP: saving is not supported.
        if request.cdb[1] & 0x01 != 0 {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into());
        }
        let list: Vec<u8> = list_of(&request.data, length);
        let before = self.mode.get();
        let wanted = mode::select(&before, is_long, &list)?;
        if wanted != before {
            self.set_mode(wanted);
            self.raise_attention_for_others(Some(request.nexus), AdditionalSense::MODE_PARAMETERS_CHANGED);
        }
        Ok(ResponseData::None)
    }

    fn read_capacity_10(&self, cdb: &[u8]) -> UnitResult<ResponseData> {
        // Without the obsolete PMI the LBA must be zero.
        if be32(&cdb[2..6]) != 0 && cdb[8] & 1 == 0 {
            return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into());
        }
        let last = u32::try_from(self.blocks().saturating_sub(1)).unwrap_or(u32::MAX);
        Ok(ResponseData::Parameters([last.to_be_bytes(), self.properties.block_bytes.to_be_bytes()].concat()))
    }

    /// LOG SENSE: supported pages, and the logical block provisioning page (SBC-3, 6.4.5).
    fn log_sense(&self, cdb: &[u8]) -> UnitResult<ResponseData> {
        const ROOM: u8 = 0x0c;
        let (page, subpage, from) = (cdb[2] & 0x3f, cdb[3], be16(&cdb[5..7]));
        let data = match (page, subpage, from, &self.watch) {
            (0, 0, 0, None) => vec![0x00, 0, 0, 1, 0],
            (0, 0, 0, Some(_)) => vec![0x00, 0, 0, 2, 0, ROOM],
            (0, 0xff, 0, None) => vec![0x40, 0xff, 0, 4, 0, 0, 0, 0xff],
            (0, 0xff, 0, Some(_)) => vec![0x40, 0xff, 0, 6, 0, 0, 0, 0xff, ROOM, 0],
            (ROOM, 0, 0..=2, Some(watch)) => {
                let fill = watch.fill();
                let mut data = vec![ROOM, 0, 0, 0];
                for (code, sets) in [(1, fill.sets_available()), (2, fill.sets_used())] {
                    if usize::from(code) >= from {
                        // Binary list format; the resource is shared with other units.
                        data.extend([0, code, 0x03, 8]);
                        data.extend(sets.to_be_bytes());
                        data.extend([0x02, 0, 0, 0]);
                    }
                }
                data[3] = data.len() as u8 - 4;
                data
            }
            _ => return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into()),
        };
        Ok(parameters(data, be16(&cdb[7..9])))
    }

    /// READ CAPACITY(16) parameter data (SBC-3, 5.16).
    fn capacity(&self) -> Vec<u8> {
        let mut data = self.blocks().saturating_sub(1).to_be_bytes().to_vec();
        data.extend(self.properties.block_bytes.to_be_bytes());
        data.extend([0, self.properties.physical_exponent()]);
        // LBPME and LBPRZ.
        data.extend(if self.properties.is_thin { [0xc0, 0] } else { [0, 0] });
        data.resize(32, 0);
        data
    }

    fn maintenance_in(&self, known: &SupportedCommand, cdb: &[u8]) -> UnitResult<ResponseData> {
        let room = be32(&cdb[6..10]) as usize;
        let data = match known.service_action {
            Some(code::REPORT_TARGET_PORT_GROUPS) => self.port_groups(cdb[1] >> 5 == 1),
            Some(code::REPORT_SUPPORTED_OPERATION_CODES) => supported(cdb)?,
            // Supported: ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
            _ => vec![0xc8 | 0x10 | 0x02, 0, 0, 0],
        };
        Ok(parameters(data, room))
    }

    /// One target port group, active/optimized, with one port (SPC-4, 6.37).
    fn port_groups(&self, is_extended: bool) -> Vec<u8> {
        let mut groups = if is_extended { vec![0x10, 0, 0, 0] } else { Vec::new() };
        groups.extend([0x00, 0x01, 0, 1, 0, 0, 0, 1, 0, 0]);
        groups.extend(self.properties.port.to_be_bytes());
        [&(groups.len() as u32).to_be_bytes()[..], &groups].concat()
    }
}

/// READ DEFECT DATA: an empty list, whatever list and format are asked for (SBC-3, 5.9).
fn no_defects(request: &[u8], rest: usize) -> Vec<u8> {
    [request, &vec![0; rest]].concat()
}

/// REPORT LUNS (SPC-4, 6.33): peripheral device addressing below 256, flat space addressing above.
fn report_luns(units: &[u64], cdb: &[u8]) -> UnitResult<ResponseData> {
    let units: &[u64] = match cdb[2] {
        0 | 2 => units,
        // No well known logical units.
        1 => &[],
        _ => return Err(Sense::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).into()),
    };
    let mut data = ((units.len() * 8) as u32).to_be_bytes().to_vec();
    data.extend([0; 4]);
    for &unit in units {
        let address = if unit < 256 { unit as u16 } else { 0x4000 | unit as u16 };
        data.extend(address.to_be_bytes());
        data.extend([0; 6]);
    }
    Ok(parameters(data, be32(&cdb[6..10]) as usize))
}

/// REPORT SUPPORTED OPERATION CODES (SPC-4, 6.35).
fn supported(cdb: &[u8]) -> Result<Vec<u8>, Sense> {
    let has_timeouts = cdb[2] & 0x80 != 0;
    let (wanted, action) = (cdb[3], u16::from_be_bytes([cdb[4], cdb[5]]));
    let timeouts: &[u8] = if has_timeouts { &[0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } else { &[] };
    let has_actions = of_code(wanted).any(|known| known.service_action.is_some());
    // Points at REPORTING OPTIONS.
    let invalid = Err(Sense::invalid_byte(2));
    let one = match cdb[2] & 0x07 {
        0 => {
            let mut all = Vec::new();
            for known in SUPPORTED_COMMANDS {
                let action = known.service_action;
                let flags = u8::from(action.is_some()) | if has_timeouts { 2 } else { 0 };
                all.extend([known.code, 0]);
                all.extend(action.unwrap_or(0).to_be_bytes());
                all.extend([0, flags]);
                all.extend((known.usage.len() as u16).to_be_bytes());
                all.extend(timeouts);
            }
            return Ok([&(all.len() as u32).to_be_bytes()[..], &all].concat());
        }
        1 if has_actions => return invalid,
        2 if !has_actions && of_code(wanted).next().is_some() => return invalid,
        1 => of_code(wanted).next(),
        2 | 3 => of_code(wanted).find(|known| known.service_action.unwrap_or(0) == action),
        _ => return invalid,
    };
    let ctdp = if has_timeouts { 0x80 } else { 0 };
    Ok(match one {
        None => vec![0, 1, 0, 0],
        Some(known) => {
            let mut data = vec![0, 3 | ctdp];
            data.extend((known.usage.len() as u16).to_be_bytes());
            data.extend(known.usage);
            data.extend(timeouts);
            data
        }
    })
}
