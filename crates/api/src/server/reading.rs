//! Watches how a peer reads its answers.
//!
//! Hyper takes an answer's body piece by piece, as the socket and the peer's HTTP/2 windows have
//! room, and drops each piece when it has left. So a piece that is dropped was read, or is on its
//! way in the kernel. [`super::activity`] learns of each, and cuts a peer that reads too little.
//! Called by the service of [`super::connection`] for every answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::activity::ConnectionActivity;
use crate::unread::UnreadBytes;

/// Small, so that the pace of a slow peer is seen; not so small that a page takes many system
/// calls.
const PIECE_BYTES: usize = 32 * 1024;

/// The counted memory of an answer, among the response's extensions on its way to the server.
#[derive(Clone, Debug)]
pub struct AnswerMemory {
    _counted: Arc<UnreadBytes>,
}

impl AnswerMemory {
    /// Counts as long as the answer is unread.
    pub fn new(bytes: UnreadBytes) -> Self {
        Self { _counted: Arc::new(bytes) }
    }
}

/// The same response, its body watched.
pub(super) fn watch(response: Response, activity: &Arc<ConnectionActivity>) -> Response {
    if response.body().is_end_stream() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let memory = parts.extensions.remove();
    activity.begin_answer(Instant::now());
    let answer = Arc::new(UnreadAnswer { activity: Arc::clone(activity), _memory: memory });
    Response::from_parts(parts, Body::new(WatchedBody { body, rest: Bytes::new(), answer }))
}

/// An answer of which the peer has not read everything. The body and its pieces share it.
struct UnreadAnswer {
    activity: Arc<ConnectionActivity>,
    _memory: Option<AnswerMemory>,
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.activity.end_answer();
    }
}

struct WatchedBody {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    answer: Arc<UnreadAnswer>,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = Piece { bytes: self.rest.split_to(length), answer: Arc::clone(&self.answer) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(bytes) => hint.set_exact(bytes + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}

/// Some bytes of an answer that hyper has taken.
struct Piece {
    bytes: Bytes,
    answer: Arc<UnreadAnswer>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.answer.activity.answer_left(self.bytes.len(), Instant::now());
    }
}
