control Stage(inout bit<8> x);
package Pipe(in Stage s, bit<8> n);
