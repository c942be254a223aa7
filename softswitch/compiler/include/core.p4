// The core library of P4_16, which every architecture provides (specification, appendix D).
#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,
    PacketTooShort,         // extract, advance or lookahead beyond the packet's end
    NoMatch,                // no case of a select fits
    StackOutOfBounds,       // next or last beyond a header stack
    HeaderTooShort,         // more bits than a varbit field holds
    ParserTimeout,
    ParserInvalidArgument   // an argument of a parser's extern is out of its range
}

match_kind {
    exact,
    ternary,
    lpm
}

extern packet_in {
    void extract<T>(out T header_);
    void extract<T>(out T header_, in bit<32> varbit_bits);
    T lookahead<T>();
    void advance(in bit<32> bits);
    bit<32> length();       // in bytes
}

extern packet_out {
    void emit<T>(in T data);
}

// In a parser: go to reject with this error unless the condition holds.
extern void verify(in bool condition, in error failure);

extern bool static_assert(bool condition, string message);
extern bool static_assert(bool condition);

@noWarn("unused")
action NoAction() {}

#endif
