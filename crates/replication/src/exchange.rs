//! The beginning of a channel: both sides introduce themselves, and agree on what follows.

use crate::{
    channel::{ChannelEnd, FrameChannel},
    connect::{ConnectOutcome, Introduction, Transfer, TransferWay, WayBack, decide},
    frame::{AgreementFrame, BROUGHT_VERSION, FrameBody, RefusalCode, RefusalFrame},
    lineage::Side,
};

/// Two introductions, and the outcome that both sides computed.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// As this side names it.
    pub outcome: ConnectOutcome,
    pub theirs: Introduction,
}

/// True if the secondary names blocks that it changed, before the primary's first pass: it has changes above the common
/// cut; or one of both has a command in doubt, of which each may have other blocks; or a pass that was not finished brought
/// it snapshots, on the way to which older blocks may have come.
pub(crate) fn names_changed(agreement: &Agreement, ours: &Introduction) -> bool {
    let outcome = &agreement.outcome;
    let transfer = outcome.transfers.first();
    let forks = transfer.is_some_and(|transfer| transfer.way_back != WayBack::NotNeeded);
    let is_log = transfer.is_some_and(|transfer| transfer.way == TransferWay::Log);
    let is_in_doubt = ours.last_in_doubt || agreement.theirs.last_in_doubt;
    let receiver = |transfer: &Transfer| if transfer.to == Side::Ours { ours } else { &agreement.theirs };
    let is_unfinished = transfer.is_some_and(|transfer| receiver(transfer).unfinished.is_some());
    outcome.common.is_some() && (forks || (is_in_doubt || is_unfinished) && !is_log)
}

/// True if the secondary names what unfinished passes brought, before the primary's first pass. `secondary`: the side that it
/// is.
pub(crate) fn names_brought(
    agreement: &Agreement,
    ours: &Introduction,
    (secondary, version): (Side, u16),
) -> bool {
    let unfinished = match secondary {
        Side::Ours => &ours.unfinished,
        Side::Theirs => &agreement.theirs.unfinished,
    };
    let is_sent = |transfer: &Transfer| transfer.to == secondary && transfer.way != TransferWay::Log;
    version >= BROUGHT_VERSION
        && unfinished.is_some()
        && agreement.outcome.transfers.first().is_some_and(is_sent)
}

/// Tells the other side why this one ends the channel.
pub(crate) async fn refuse(
    channel: &impl FrameChannel,
    code: RefusalCode,
    text: impl Into<String>,
) -> ChannelEnd {
    let refusal = RefusalFrame { code, text: text.into() };
    // The channel ends whether or not the other side hears it.
    let _ = channel.send(FrameBody::Refusal(refusal.clone())).await;
    ChannelEnd::RefusedHere(refusal)
}

/// The next frame; a refusal is the end.
pub(crate) async fn receive(channel: &impl FrameChannel) -> Result<FrameBody, ChannelEnd> {
    match channel.receive().await? {
        FrameBody::Refusal(refusal) => Err(ChannelEnd::Refused(refusal)),
        body => Ok(body),
    }
}

/// The next frame in order: a word overtakes such frames, and says nothing that the next one does not say.
async fn receive_ordered(channel: &impl FrameChannel) -> Result<FrameBody, ChannelEnd> {
    loop {
        match receive(channel).await? {
            FrameBody::Word(_) => {}
            body => return Ok(body),
        }
    }
}

/// Introduces a side, and compares what both computed.
///
/// # Errors
///
/// The channel ended; the other side says something else, contradicts itself, or computed another outcome.
pub async fn agree(channel: &impl FrameChannel, ours: &Introduction) -> Result<Agreement, ChannelEnd> {
    ours.check().expect("a side does not contradict itself");
    channel.send(FrameBody::Introduction(Box::new(ours.clone()))).await?;
    let theirs = match receive_ordered(channel).await? {
        FrameBody::Introduction(theirs) => *theirs,
        body => return Err(unexpected(channel, &body).await),
    };
    // Frames are checked when they are read; another channel may not.
    if let Err(fault) = theirs.check() {
        return Err(refuse(channel, RefusalCode::Agreement, format!("the introduction: {fault}")).await);
    }
    let outcome = decide(ours, &theirs);
    channel.send(FrameBody::Agreement(AgreementFrame { outcome: outcome.clone() })).await?;
    let computed = match receive_ordered(channel).await? {
        FrameBody::Agreement(AgreementFrame { outcome }) => outcome,
        body => return Err(unexpected(channel, &body).await),
    };
    if computed != outcome.mirrored() {
        let text = format!(
            "the sides computed different outcomes, {:?} and {:?}; compare their versions",
            outcome.finding, computed.finding
        );
        return Err(refuse(channel, RefusalCode::Agreement, text).await);
    }
    Ok(Agreement { outcome, theirs })
}

/// Refuses a frame that does not belong here.
pub(crate) async fn unexpected(channel: &impl FrameChannel, body: &FrameBody) -> ChannelEnd {
    let text = format!("a frame {:?} does not belong here", body.kind());
    refuse(channel, RefusalCode::Frame, text).await
}
