//! Frames with which two sides compare a group: introductions, and the outcomes that they computed.

use super::{BodyCodec, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks};
use crate::{
    connect::{
        ConnectFinding, ConnectOutcome, HostService, Introduction, SiteRole, Transfer, TransferWay,
        UnfinishedPass, WayBack,
    },
    lineage::{CommonCut, Side},
};
use array::format::{EpochId, Fence, GroupId};
use std::sync::Arc;
use world::Buffer;

impl BodyCodec for Box<Introduction> {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.group.0).u8((self.role == SiteRole::Primary).into()).u8(self.is_in_sync.into());
        writer.u8(self.last_in_doubt.into());
        writer.u64(self.fence.0).lineage(self.lineage.as_ref());
        writer.cut(&self.has).cut(&self.told).cut(&self.log_from).count(self.points.len());
        self.points.iter().for_each(|point| {
            writer.cut(point);
        });
        writer.u8(self.unfinished.is_some().into());
        if let Some(pass) = &self.unfinished {
            writer.cut(&pass.since).cut(&pass.until);
        }
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let group = GroupId(reader.array()?);
        let role = if reader.flag()? { SiteRole::Primary } else { SiteRole::Secondary };
        let (is_in_sync, last_in_doubt) = (reader.flag()?, reader.flag()?);
        let fence = Fence(reader.u64()?);
        let lineage = reader.lineage()?;
        let (has, told, log_from) = (reader.cut()?, reader.cut()?, reader.cut()?);
        let count = reader.count(9)?;
        let points = (0..count).map(|_| reader.cut()).collect::<Result<_, _>>()?;
        let unfinished = match reader.flag()? {
            true => Some(UnfinishedPass { since: reader.cut()?, until: reader.cut()? }),
            false => None,
        };
        let said = Introduction {
            group,
            role,
            fence,
            lineage,
            has,
            told,
            is_in_sync,
            points,
            log_from,
            last_in_doubt,
            unfinished,
        };
        said.check().map_err(|fault| reader.fault(FrameFault::Introduction(fault)))?;
        Ok(Box::new(said))
    }
}

/// The outcome that the sender computed, from its own side. The receiver compares it with the mirror image of its
/// own, and refuses the channel if they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreementFrame {
    pub outcome: ConnectOutcome,
}

fn side_number(side: Option<Side>) -> u8 {
    side.map_or(0, |side| 1 + u8::from(side == Side::Theirs))
}

fn read_side(reader: &mut BodyReader<'_>) -> Result<Option<Side>, FrameError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(Side::Ours)),
        2 => Ok(Some(Side::Theirs)),
        _ => Err(reader.fault(FrameFault::Value("a side"))),
    }
}

fn finding_number(finding: ConnectFinding) -> (u8, Option<Side>) {
    match finding {
        ConnectFinding::Equal => (1, None),
        ConnectFinding::Behind(side) => (2, Some(side)),
        ConnectFinding::ReturnedWithLess(side) => (3, Some(side)),
        ConnectFinding::Crossed(side) => (4, Some(side)),
        ConnectFinding::TailNeverAcknowledged(side) => (5, Some(side)),
        ConnectFinding::Diverged => (6, None),
        ConnectFinding::FirstCopy(side) => (7, Some(side)),
        ConnectFinding::TwoPrimaries => (8, None),
        ConnectFinding::Unrelated => (9, None),
        ConnectFinding::OtherShape => (10, None),
    }
}

fn read_finding(reader: &mut BodyReader<'_>) -> Result<ConnectFinding, FrameError> {
    let number = reader.u8()?;
    Ok(match (number, read_side(reader)?) {
        (1, None) => ConnectFinding::Equal,
        (2, Some(side)) => ConnectFinding::Behind(side),
        (3, Some(side)) => ConnectFinding::ReturnedWithLess(side),
        (4, Some(side)) => ConnectFinding::Crossed(side),
        (5, Some(side)) => ConnectFinding::TailNeverAcknowledged(side),
        (6, None) => ConnectFinding::Diverged,
        (7, Some(side)) => ConnectFinding::FirstCopy(side),
        (8, None) => ConnectFinding::TwoPrimaries,
        (9, None) => ConnectFinding::Unrelated,
        (10, None) => ConnectFinding::OtherShape,
        _ => return Err(reader.fault(FrameFault::Value("the finding"))),
    })
}

fn service_number(service: HostService) -> (u8, Option<Side>) {
    match service {
        HostService::Nobody => (1, None),
        HostService::AtOnce(side) => (2, Some(side)),
        HostService::AfterTransfer(side) => (3, Some(side)),
        HostService::EachAlone => (4, None),
    }
}

fn read_service(reader: &mut BodyReader<'_>) -> Result<HostService, FrameError> {
    let number = reader.u8()?;
    Ok(match (number, read_side(reader)?) {
        (1, None) => HostService::Nobody,
        (2, Some(side)) => HostService::AtOnce(side),
        (3, Some(side)) => HostService::AfterTransfer(side),
        (4, None) => HostService::EachAlone,
        _ => return Err(reader.fault(FrameFault::Value("the service"))),
    })
}

fn write_transfer(writer: &mut BodyWriter, transfer: &Transfer) {
    let way = match transfer.way {
        TransferWay::Log => 1,
        TransferWay::Point => 2,
        TransferWay::BornSince => 3,
        TransferWay::Everything => 4,
    };
    let way_back = match transfer.way_back {
        WayBack::NotNeeded => 1,
        WayBack::ToPoint => 2,
        WayBack::ByBlocks => 3,
    };
    writer.u8(side_number(Some(transfer.to))).cut(&transfer.since).u8(way).u8(way_back);
    writer.u8(transfer.resumes.into());
}

fn read_transfer(reader: &mut BodyReader<'_>) -> Result<Transfer, FrameError> {
    let to = read_side(reader)?.ok_or_else(|| reader.fault(FrameFault::Value("the receiver")))?;
    let since = reader.cut()?;
    let way = match reader.u8()? {
        1 => TransferWay::Log,
        2 => TransferWay::Point,
        3 => TransferWay::BornSince,
        4 => TransferWay::Everything,
        _ => return Err(reader.fault(FrameFault::Value("the way"))),
    };
    let way_back = match reader.u8()? {
        1 => WayBack::NotNeeded,
        2 => WayBack::ToPoint,
        3 => WayBack::ByBlocks,
        _ => return Err(reader.fault(FrameFault::Value("the way back"))),
    };
    Ok(Transfer { to, since, way, way_back, resumes: reader.flag()? })
}

impl BodyCodec for AgreementFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        let outcome = &self.outcome;
        let (number, side) = finding_number(outcome.finding);
        writer.u8(number).u8(side_number(side));
        let (number, side) = service_number(outcome.service);
        writer.u8(number).u8(side_number(side)).u8(side_number(outcome.stands_down));
        writer.u8(outcome.common.is_some().into());
        if let Some(common) = &outcome.common {
            writer.bytes(&common.epoch.0).cut(&common.cut);
        }
        writer.u8(outcome.transfers.len() as u8);
        outcome.transfers.iter().for_each(|transfer| write_transfer(writer, transfer));
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let finding = read_finding(reader)?;
        let service = read_service(reader)?;
        let stands_down = read_side(reader)?;
        let common = match reader.flag()? {
            true => Some(CommonCut { epoch: EpochId(reader.array()?), cut: reader.cut()? }),
            false => None,
        };
        let count = reader.u8()?;
        let transfers = (0..count).map(|_| read_transfer(reader)).collect::<Result<_, _>>()?;
        Ok(Self { outcome: ConnectOutcome { finding, common, transfers, service, stands_down } })
    }
}
