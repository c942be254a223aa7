control Stage(inout bit<8> x);
package Pipe(Stage first);
parser P(inout bit<8> x) { state start { transition accept; } }
Pipe(P()) main;
