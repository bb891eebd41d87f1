//! PostgreSQL's protocol (version 3), as far as the proxy needs it to find a commit and its answer.
//!
//! A message is a byte for its kind, a length of four bytes that counts itself, and a body.
//! Messages before the session begins have no kind. A server ends its answer to each simple query
//! and each `Sync` with `ReadyForQuery`, and sends one when the session begins. So the answers can
//! be counted. An encrypted connection is passed on unread.

use std::collections::HashSet;

use bytes::{Buf, BytesMut};

/// A length without a kind before it.
const BARE: usize = 4;

/// A length with a kind before it.
const HEAD: usize = 5;

/// The codes of the messages that ask for encryption. The answer is one byte, and the session
/// begins after it.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// The first byte of a TLS handshake. No length of a PostgreSQL message begins with it.
const TLS: u8 = 0x16;

/// A whole message of a client.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) bytes: BytesMut,
    /// If it commits: the number, from one, of the server's `ReadyForQuery` that answers it.
    pub(super) commit_answered_by: Option<u64>,
}

/// Parses the messages of a client.
#[derive(Debug)]
pub(super) struct Questions {
    unread: BytesMut,
    stage: Stage,
    /// How many `ReadyForQuery` the server owes for the messages so far.
    owed: u64,
    /// The names of the prepared statements that are a commit.
    statements: HashSet<Vec<u8>>,
    /// The names of the portals that are a commit.
    portals: HashSet<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Session,
    Encrypted,
}

impl Default for Questions {
    fn default() -> Self {
        // One is owed for the beginning of the session.
        let (statements, portals) = Default::default();
        Self { unread: BytesMut::new(), stage: Stage::Beginning, owed: 1, statements, portals }
    }
}

impl Questions {
    /// Adds bytes that have arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next message that has arrived as a whole.
    pub(super) fn next(&mut self) -> Option<Question> {
        if self.stage == Stage::Beginning && self.unread.first() == Some(&TLS) {
            self.stage = Stage::Encrypted;
        }
        let bytes = match self.stage {
            Stage::Encrypted => (!self.unread.is_empty()).then(|| self.unread.split())?,
            Stage::Beginning => message(&mut self.unread, BARE)?,
            Stage::Session => message(&mut self.unread, HEAD)?,
        };
        let commit_answered_by = match self.stage {
            Stage::Encrypted => None,
            Stage::Beginning => {
                let code = bytes.get(BARE..BARE + 4).map_or(0, |mut code| code.get_u32());
                if !ENCRYPTION.contains(&code) {
                    self.stage = Stage::Session;
                }
                None
            }
            Stage::Session => self.commit(bytes[0], &bytes[HEAD..]),
        };
        Some(Question { bytes, commit_answered_by })
    }

    fn commit(&mut self, kind: u8, body: &[u8]) -> Option<u64> {
        let mut strings = body.split(|byte| *byte == 0);
        let mut string = || strings.next().unwrap_or_default();
        let commits = match kind {
            b'Q' => commits(string()),
            b'P' => {
                let name = string();
                set(&mut self.statements, name, commits(string()));
                false
            }
            b'B' => {
                let (portal, statement) = (string(), string());
                let commits = self.statements.contains(statement);
                set(&mut self.portals, portal, commits);
                false
            }
            b'E' => self.portals.contains(string()),
            b'C' => {
                // The body names the kind (a statement or a portal), then the name.
                match string().split_first() {
                    Some((b'S', name)) => set(&mut self.statements, name, false),
                    Some((b'P', name)) => set(&mut self.portals, name, false),
                    _ => {}
                }
                false
            }
            _ => false,
        };
        // A commit by `Execute` is answered together with the `Sync` that follows.
        let answered_by = self.owed + 1;
        if matches!(kind, b'Q' | b'S' | b'F') {
            self.owed += 1;
        }
        commits.then_some(answered_by)
    }
}

/// Parses the answers of a server.
#[derive(Debug)]
pub(super) struct Answers {
    unread: BytesMut,
    stage: Stage,
    ready: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Self { unread: BytesMut::new(), stage: Stage::Beginning, ready: 0 }
    }
}

impl Answers {
    /// Adds bytes that have arrived, and returns how many `ReadyForQuery` have arrived so far.
    pub(super) fn push(&mut self, bytes: &[u8]) -> u64 {
        if self.stage == Stage::Encrypted {
            return self.ready;
        }
        self.unread.extend_from_slice(bytes);
        loop {
            match (self.stage, self.unread.first()) {
                // The answer to a request for encryption: no, or yes in one of two ways. No session
                // begins with these bytes.
                (Stage::Beginning, Some(b'N')) => self.unread.advance(1),
                (Stage::Beginning, Some(b'S' | b'G')) => {
                    self.stage = Stage::Encrypted;
                    return self.ready;
                }
                _ => {
                    let Some(message) = message(&mut self.unread, HEAD) else { return self.ready };
                    self.stage = Stage::Session;
                    self.ready += u64::from(message[0] == b'Z');
                }
            }
        }
    }
}

/// Takes a whole message from the front, if there is one. `head` is the size of the part before its
/// body.
fn message(unread: &mut BytesMut, head: usize) -> Option<BytesMut> {
    let kind = head - BARE;
    let length = unread.get(kind..head)?.get_u32();
    let length = kind + usize::try_from(length).expect("invariant: a usize holds a u32").max(BARE);
    (unread.len() >= length).then(|| unread.split_to(length))
}

/// Whether one of the statements, separated by semicolons, is a `COMMIT`. A `COMMIT` inside a
/// string or a function's body counts too.
fn commits(sql: &[u8]) -> bool {
    let mut statements = sql.split(|byte| *byte == b';');
    statements.any(|statement| {
        let word = statement.trim_ascii_start();
        let end = word.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(word.len());
        word[..end].eq_ignore_ascii_case(b"commit")
    })
}

fn set(names: &mut HashSet<Vec<u8>>, name: &[u8], present: bool) {
    if present {
        names.insert(name.to_owned());
    } else {
        names.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: &[u8], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + BARE).expect("a short body").to_be_bytes();
        [kind, &length, body].concat()
    }

    fn session() -> Vec<u8> {
        framed(b"", b"\x00\x03\x00\x00user\0me\0\0")
    }

    /// The answers that the commits in these messages wait for, whichever way the bytes arrive.
    fn commits_in(messages: &[Vec<u8>]) -> Vec<u64> {
        let bytes = messages.concat();
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut questions, mut passed, mut found) = (Questions::default(), Vec::new(), Vec::new());
            for piece in pieces {
                questions.push(piece);
                while let Some(question) = questions.next() {
                    passed.extend(question.bytes);
                    found.extend(question.commit_answered_by);
                }
            }
            assert_eq!(passed, bytes, "everything passes unchanged");
            found
        };
        let at_once = read(&mut std::iter::once(bytes.as_slice()));
        assert_eq!(read(&mut bytes.chunks(1)), at_once);
        at_once
    }

    #[test]
    fn simple_commits_are_found() {
        let query = |sql: &[u8]| framed(b"Q", &[sql, b"\0"].concat());
        assert_eq!(commits_in(&[session(), query(b"BEGIN"), query(b"COMMIT")]), [3]);
        assert_eq!(commits_in(&[session(), query(b"begin; select 1;\n commit ;"), query(b"Commit")]), [2, 3]);
        assert!(
            commits_in(&[session(), query(b"SELECT commit"), query(b"COMMITTED"), query(b"commit_all")]).is_empty()
        );
    }

    #[test]
    fn prepared_commits_are_found_where_they_are_executed() {
        let prepare = |name: &str, sql: &str| framed(b"P", format!("{name}\0{sql}\0\0\0").as_bytes());
        let bind = |portal: &str, name: &str| framed(b"B", format!("{portal}\0{name}\0\0\0\0\0\0\0").as_bytes());
        let execute = |portal: &str| framed(b"E", format!("{portal}\0\0\0\0\0").as_bytes());
        let sync = || framed(b"S", b"");
        let prepared = [session(), prepare("c", "COMMIT"), prepare("i", "INSERT"), sync()];
        let once = [bind("", "i"), execute(""), bind("", "c"), execute(""), sync()];
        let closed = [framed(b"C", b"Sc\0"), bind("", "c"), execute(""), sync()];
        assert_eq!(commits_in(&[prepared.to_vec(), once.to_vec(), once.to_vec(), closed.to_vec()].concat()), [3, 4]);
    }

    #[test]
    fn an_encrypted_connection_passes_unread() {
        let asked = framed(b"", &ENCRYPTION[0].to_be_bytes());
        let hello = b"\x16\x03\x01Q\0\0\0\x0bCOMMIT\0".to_vec();
        assert!(commits_in(&[asked.clone(), hello]).is_empty());
        assert_eq!(commits_in(&[asked, session(), framed(b"Q", b"COMMIT\0")]), [2], "unless it was declined");
    }

    #[test]
    fn answers_are_counted() {
        let ready = framed(b"Z", b"I");
        let begun = [framed(b"R", b"\0\0\0\0"), framed(b"N", b"a notice"), framed(b"S", b"a setting"), ready.clone()];
        let rest = [framed(b"D", b"ZZZZ"), ready].concat();
        let mut answers = Answers::default();
        assert_eq!(answers.push(&[b"N".to_vec(), begun.concat()].concat()), 1);
        let counts: Vec<u64> = rest.chunks(3).map(|piece| answers.push(piece)).collect();
        assert_eq!(counts.last(), Some(&2));
        let mut encrypted = Answers::default();
        assert_eq!(encrypted.push(&[b"S".to_vec(), rest].concat()), 0);
    }
}
