package archtest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Size is the number of lines of Go in a folder of the top level, or one below cmd, internal and
// test.
type Size struct {
	Room           string
	Product, Tests int
}

// Sizes are those of all folders, the largest first. In test everything counts as tests.
func Sizes(files []File) []Size {
	rooms := map[string]*Size{}
	for _, f := range files {
		parts := strings.Split(f.Name, "/")
		room := parts[0]
		if slices.Contains([]string{"cmd", "internal", "test"}, room) {
			room += "/" + parts[1]
		}
		if rooms[room] == nil {
			rooms[room] = &Size{Room: room}
		}
		lines := bytes.Count(f.Content, []byte("\n"))
		if parts[0] == "test" || strings.HasSuffix(f.Name, "_test.go") {
			rooms[room].Tests += lines
		} else {
			rooms[room].Product += lines
		}
	}
	var all []Size
	for _, s := range rooms {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Size) int {
		return cmp.Or(b.Product-a.Product, b.Tests-a.Tests, strings.Compare(a.Room, b.Room))
	})
	return all
}

// SizeTable is a Markdown table of sizes and their sum, to the hundred.
func SizeTable(sizes []Size) string {
	sum := Size{Room: "all"}
	var table strings.Builder
	table.WriteString("| folder | product | tests |\n|---|--:|--:|\n")
	row := func(s Size) {
		fmt.Fprintf(&table, "| %s | %d | %d |\n", s.Room, rounded(s.Product), rounded(s.Tests))
	}
	for _, s := range sizes {
		s.Room = "`" + s.Room + "`"
		row(s)
		sum.Product += s.Product
		sum.Tests += s.Tests
	}
	row(sum)
	return table.String()
}

func rounded(lines int) int { return (lines + 50) / 100 * 100 }
