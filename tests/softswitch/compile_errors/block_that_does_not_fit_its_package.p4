control Stage<H>(inout H headers, in bit<8> port);
package Pipe<H>(Stage<H> first, Stage<H> second);
struct A { }
struct B { }
control One(inout A headers, in bit<8> port) { apply { } }
control Two(inout B headers, in bit<8> port) { apply { } }
Pipe(One(), Two()) main;
