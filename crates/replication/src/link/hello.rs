//! The first frames of a connection: versions, and which session it is of.

use super::{
    LinkError, LinkSettings,
    connection::{ArrivedFrame, LinkReader, LinkWriter, read_frame, write_frame},
    refusal,
};
use crate::frame::{Frame, FrameBody, HelloFrame, RefusalCode, RefusalFrame};
use array::format::SiteId;
use tokio::io::AsyncWriteExt;

/// Bytes of a frame before *hello* is done: the other side may be anyone.
const HELLO_BYTES_MAX: usize = 4096;

/// Position of a connection in its session, as the side that connects says it.
#[derive(Clone, Copy)]
pub(super) struct ConnectionPlace {
    pub session: u64,
    pub index: u16,
    pub count: u16,
    pub is_joining: bool,
}

/// A failed *hello*.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloFailure {
    /// Of the connection; another one may do.
    #[error("{0}")]
    Connection(String),
    /// Of the other side, or of this one; another connection would get the same.
    #[error("refused: {}", .0.text)]
    Refused(RefusalFrame),
}

impl From<HelloFailure> for LinkError {
    fn from(failure: HelloFailure) -> Self {
        match failure {
            HelloFailure::Connection(reason) => Self::Unreachable(reason),
            HelloFailure::Refused(refused) => Self::Refused(refused),
        }
    }
}

fn broken(error: impl std::fmt::Display) -> HelloFailure {
    HelloFailure::Connection(error.to_string())
}

fn hello(settings: &LinkSettings, place: ConnectionPlace) -> HelloFrame {
    HelloFrame {
        versions: settings.versions,
        site: settings.site,
        session: place.session,
        connection: place.index,
        connections: place.count,
        is_joining: place.is_joining,
        program: settings.program.clone(),
    }
}

pub(super) async fn send(writer: &mut LinkWriter, body: FrameBody) -> Result<(), HelloFailure> {
    let frame = Frame { channel: 0, sequence: 0, body };
    write_frame(writer, &frame.encode(), &|| ()).await.map_err(broken)?;
    writer.flush().await.map_err(broken)
}

/// The next frame, which is of the session.
pub(super) async fn receive(reader: &mut LinkReader) -> Result<FrameBody, HelloFailure> {
    let ArrivedFrame { frame, .. } = read_frame(reader, HELLO_BYTES_MAX, &|| ()).await.map_err(broken)?;
    match frame.body {
        FrameBody::Refusal(refused) => Err(HelloFailure::Refused(refused)),
        _ if frame.channel != 0 => Err(broken("a frame of a channel came before hello")),
        body => Ok(body),
    }
}

/// Says hello from the side that connects. Returns the other side's hello and the version to use.
pub(super) async fn greet(
    (reader, writer): &mut (LinkReader, LinkWriter),
    settings: &LinkSettings,
    site: Option<SiteId>,
    place: ConnectionPlace,
) -> Result<(HelloFrame, u16), HelloFailure> {
    send(writer, FrameBody::Hello(hello(settings, place))).await?;
    let FrameBody::Hello(theirs) = receive(reader).await? else {
        return Err(broken("the answer to hello is another frame"));
    };
    let version = common_version(settings, &theirs).map_err(HelloFailure::Refused)?;
    if site.is_some_and(|site| site != theirs.site) {
        let text = "another site answers at this address";
        return Err(HelloFailure::Refused(refusal(RefusalCode::NotPaired, text)));
    }
    if (theirs.session, theirs.connection) != (place.session, place.index) {
        return Err(broken("the answer to hello is for another connection"));
    }
    Ok((theirs, version))
}

/// The hello of the side that connects, and the version to use.
pub(super) fn check(settings: &LinkSettings, theirs: &HelloFrame) -> Result<u16, RefusalFrame> {
    let version = common_version(settings, theirs)?;
    if theirs.site == settings.site {
        return Err(refusal(RefusalCode::NotPaired, "a site cannot be its own peer"));
    }
    Ok(version)
}

/// Answers a hello.
pub(super) async fn answer(
    writer: &mut LinkWriter,
    settings: &LinkSettings,
    theirs: &HelloFrame,
) -> Result<(), HelloFailure> {
    let place = ConnectionPlace {
        session: theirs.session,
        index: theirs.connection,
        count: theirs.connections,
        is_joining: theirs.is_joining,
    };
    send(writer, FrameBody::Hello(hello(settings, place))).await
}

fn common_version(settings: &LinkSettings, theirs: &HelloFrame) -> Result<u16, RefusalFrame> {
    settings.versions.common(theirs.versions).ok_or_else(|| {
        let text =
            format!("one site knows {} of the link, the other one {}", settings.versions, theirs.versions);
        refusal(RefusalCode::Version, text)
    })
}
