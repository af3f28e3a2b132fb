//! Messages of prost over tonic, with small buffers: requests are short, and those that a silent server does not answer
//! add up.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

pub(super) struct Small<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Default for Small<Q, A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, A> Codec for Small<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    type Encode = Q;
    type Decode = A;
    type Encoder = <ProstCodec<Q, A> as Codec>::Encoder;
    type Decoder = <ProstCodec<Q, A> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Q, A>::raw_encoder(BufferSettings::new(512, 32 * 1024))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<Q, A>::raw_decoder(BufferSettings::new(1024, 32 * 1024))
    }
}
