control check<H>(inout H it);
package Switch<H>(check<H> last = check(H > 3));
