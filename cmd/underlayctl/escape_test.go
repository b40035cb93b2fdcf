package main

import (
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/table"
)

// Reports of nodes, Events and names in the cloud are untrusted texts. They must not control the
// terminal, begin a row, or change the direction of text.
func TestTextsOfOthersGiveATerminalNoOrders(t *testing.T) {
	for _, orders := range []string{
		"\x1b]52;c;cm0gLXJmIC8K\x07", "\x1b[2J\x1b[1;1H", "\u009b2J", "\x9b2J", "\r", "\b", "\x7f", "\u202e", "\u2066", "\u200f",
	} {
		held := table.New("addresses", "", "ADDRESS", "SERVICES", "WHY")
		held.Add("192.0.2.17", "shop/web"+orders, table.Warn.Cell("evil: AddressInUse: "+orders+"all is well"))
		shown := table.Page{Tables: []table.Table{held}, Lines: []string{"said: " + orders}, Notes: []string{orders}}
		out := table.Painter{Wide: true}.Page(shown) + strings.Join(shown.Remarks(), "\n")
		if strings.Contains(out, orders) || !strings.Contains(out, "shop/web") {
			t.Errorf("the terminal is told %q", out)
		}
		if got := table.OneLine("error: " + orders + "x"); strings.Contains(got, orders) {
			t.Errorf("of an error: %q", got)
		}
	}
}
