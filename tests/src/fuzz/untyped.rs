//! Structs of no type, as capnp reads and builds them.

use capnp::{
    introspect,
    private::layout::{PointerBuilder, PointerReader, StructBuilder, StructReader as Reading, StructSize},
    traits::{
        FromPointerBuilder, FromPointerReader, HasStructSize, IntoInternalStructReader, OwnedStruct,
        SetterInput,
    },
};

use super::message::FIELDS;

const SIZE: StructSize = StructSize { data: FIELDS, pointers: FIELDS };

/// Any struct.
#[derive(Clone, Copy)]
pub struct Untyped;

impl introspect::Introspect for Untyped {
    fn introspect() -> introspect::Type {
        // Nobody asks.
        <u8 as introspect::Introspect>::introspect()
    }
}

impl OwnedStruct for Untyped {
    type Reader<'a> = Struct<'a>;
    type Builder<'a> = NewStruct<'a>;
}

/// One that is read.
pub struct Struct<'a>(pub Reading<'a>);

impl<'a> From<Reading<'a>> for Struct<'a> {
    fn from(reader: Reading<'a>) -> Self {
        Self(reader)
    }
}

impl<'a> IntoInternalStructReader<'a> for Struct<'a> {
    fn into_internal_struct_reader(self) -> Reading<'a> {
        self.0
    }
}

impl SetterInput<Untyped> for Struct<'_> {
    fn set_pointer_builder(
        mut builder: PointerBuilder<'_>,
        input: Self,
        canonicalize: bool,
    ) -> capnp::Result<()> {
        builder.set_struct(&input.0, canonicalize)
    }
}

impl<'a> FromPointerReader<'a> for Struct<'a> {
    fn get_from_pointer(
        reader: &PointerReader<'a>,
        default: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<Self> {
        reader.get_struct(default).map(Self)
    }
}

/// One that is built, of [`FIELDS`] words and pointers.
pub struct NewStruct<'a>(pub StructBuilder<'a>);

impl<'a> From<StructBuilder<'a>> for NewStruct<'a> {
    fn from(builder: StructBuilder<'a>) -> Self {
        Self(builder)
    }
}

impl HasStructSize for NewStruct<'_> {
    const STRUCT_SIZE: StructSize = SIZE;
}

impl<'a> FromPointerBuilder<'a> for NewStruct<'a> {
    fn init_pointer(builder: PointerBuilder<'a>, _: u32) -> Self {
        Self(builder.init_struct(SIZE))
    }

    fn get_from_pointer(
        builder: PointerBuilder<'a>,
        default: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<Self> {
        builder.get_struct(SIZE, default).map(Self)
    }
}
