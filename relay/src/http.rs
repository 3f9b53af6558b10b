//! As much HTTP/1.1 as a CONNECT and an admin page need: read one head, write one answer, close without losing it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Largest request head, in bytes; a larger one is answered 431.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
/// How long an answered client may take to read the answer and close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The request line, and whatever the client sent right behind the head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The method, as sent.
    pub method: String,
    /// The request target, as sent.
    pub target: String,
    /// Bytes that arrived glued to the head; they belong to what follows.
    pub glued: Vec<u8>,
}

/// Why there is no head.
#[derive(Debug)]
pub enum HeadError {
    /// The peer closed before it sent anything, as a TCP health check does.
    Silent,
    /// The head is not HTTP/1, or the peer closed inside it.
    Malformed,
    /// No end of head within [`HEAD_BYTES_MAX`], or too many headers.
    TooLarge,
    /// The socket failed.
    Io(io::Error),
}

/// Reads one request head; the caller sets the deadline.
pub async fn read_head(stream: &mut TcpStream) -> Result<Head, HeadError> {
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX);
    loop {
        let seen = buffer.len();
        let room = (HEAD_BYTES_MAX - seen) as u64;
        let mut limited = (&mut *stream).take(room);
        match limited.read_buf(&mut buffer).await.map_err(HeadError::Io)? {
            0 if seen == 0 => return Err(HeadError::Silent),
            0 => return Err(HeadError::Malformed),
            _ => {}
        }
        // Parsing only behind a blank line keeps a head that trickles in byte by byte from costing a parse for each byte.
        if (has_blank_line(&buffer[seen.saturating_sub(3)..]) || buffer.len() == HEAD_BYTES_MAX)
            && let Some(head) = parse_head(&buffer)?
        {
            return Ok(head);
        }
        if buffer.len() == HEAD_BYTES_MAX {
            return Err(HeadError::TooLarge);
        }
    }
}

fn has_blank_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

fn parse_head(buffer: &[u8]) -> Result<Option<Head>, HeadError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(_) => return Err(HeadError::Malformed),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(HeadError::Malformed);
    };
    Ok(Some(Head {
        method: method.to_owned(),
        target: target.to_owned(),
        glued: buffer[length..].to_vec(),
    }))
}

/// A whole answer; the connection closes behind it.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A plain-text answer; a newline is added to `text`.
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
        }
    }

    /// A JSON answer.
    pub fn json(value: &serde_json::Value) -> Self {
        Self {
            status: 200,
            content_type: "application/json",
            body: format!("{value}\n"),
        }
    }

    fn encode(&self) -> String {
        let allow = if self.status == 405 { "Allow: CONNECT\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{}",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len(),
            self.body
        )
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

/// Sends `answer` and closes, reading on for a moment: closing over unread bytes would reset the answer away.
pub async fn answer_and_close(mut stream: TcpStream, answer: &Answer) {
    let exchange = async {
        stream.write_all(answer.encode().as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that goes away, or does not read, has given up its answer.
    let _ = timeout(CLOSE_TIMEOUT, exchange).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_split_from_the_bytes_glued_to_it() {
        let head = parse_head(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nPRI * ").unwrap();
        let expected = Head {
            method: "CONNECT".into(),
            target: "a:1".into(),
            glued: b"PRI * ".to_vec(),
        };
        assert_eq!(head, Some(expected));
    }

    #[test]
    fn half_a_head_is_not_a_head_yet() {
        assert_eq!(parse_head(b"CONNECT a:1 HTTP/1.1\r\nHost:").unwrap(), None);
    }

    #[test]
    fn http_2_and_tls_are_malformed() {
        for bytes in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
        ] {
            assert!(matches!(parse_head(bytes), Err(HeadError::Malformed)));
        }
    }

    #[test]
    fn a_blank_line_is_found_with_and_without_carriage_returns() {
        assert!(has_blank_line(b"x\r\n\r\n"));
        assert!(has_blank_line(b"x\n\n"));
        assert!(!has_blank_line(b"x\r\ny\r\n"));
    }

    #[test]
    fn an_answer_is_complete_http() {
        let expected = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\
                        Connection: close\r\n\r\nno\n";
        assert_eq!(Answer::text(404, "no").encode(), expected);
    }
}
