//! What a table of messages becomes: a type, the number and the name of each, and how they are written and read.

macro_rules! messages {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal { $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty,)* })*) => {
        /// What is said. Requests have numbers from 32, answers from 128; the rest is the handshake.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Message {
            $($(#[doc = $doc])* $name { $($(#[doc = $field_doc])* $field: $kind,)* },)*
        }

        impl Message {
            /// Number and name of every message.
            pub const KINDS: &[(u16, &str)] = &[$(($number, stringify!($name))),*];

            /// Its number.
            pub fn kind(&self) -> u16 {
                match self { $(Message::$name { .. } => $number,)* }
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self { $(Message::$name { .. } => stringify!($name),)* }
            }

            /// Appends its body.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Message::$name { $($field,)* } => { $($crate::codec::Field::put($field, out);)* let _ = &out; })* }
            }

            /// Reads the body of the message with this number.
            pub fn decode(kind: u16, body: &[u8]) -> Result<Message, $crate::codec::DecodeError> {
                let mut from = $crate::codec::FieldReader::new(body);
                let message = match kind {
                    $($number => Message::$name { $($field: <$kind as $crate::codec::Field>::take(&mut from)?,)* },)*
                    unknown => return Err($crate::codec::DecodeError::Kind(unknown)),
                };
                from.end()?;
                Ok(message)
            }
        }
    };
}

pub(crate) use messages;
