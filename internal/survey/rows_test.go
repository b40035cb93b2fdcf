package survey_test

import (
	"strings"

	"github.com/underlay-ccm/underlay/internal/table"
)

// row has the texts of a table's row by the names of their columns, empty without a value.
type row map[string]string

// rows returns those of the table with that name.
func rows(page table.Page, name string) (all []row) {
	for _, t := range page.Tables {
		if t.Name != name {
			continue
		}
		for _, r := range t.Rows {
			texts := row{}
			for i, c := range r.Cells {
				texts[t.Columns[i].Name] = strings.TrimSuffix(c.Text, table.None)
			}
			all = append(all, texts)
		}
	}
	return all
}
