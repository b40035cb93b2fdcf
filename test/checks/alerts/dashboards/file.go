package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// schema is the version of the files' form: that of Grafana 10.4. Later ones read it too.
const schema = 39

// object is one of JSON, in which the order of keys says nothing.
type object map[string]any

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"` // from here on; null: from the lowest
}

// panelFile is a panel in the order in which a person reads it.
type panelFile struct {
	ID          int      `json:"id"`
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	GridPos     object   `json:"gridPos"`
	Datasource  object   `json:"datasource,omitempty"`
	Targets     []target `json:"targets,omitempty"`
	FieldConfig object   `json:"fieldConfig,omitempty"`
	Options     object   `json:"options,omitempty"`
	Collapsed   *bool    `json:"collapsed,omitempty"`
	Panels      *[]any   `json:"panels,omitempty"`
}

type target struct {
	RefID   string `json:"refId"`
	Expr    string `json:"expr"`
	Legend  string `json:"legendFormat,omitempty"`
	Instant bool   `json:"instant,omitempty"`
}

// chosen is the data source that the person chose above the dashboard.
func chosen() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// File is the dashboard as Grafana reads it.
func (d Dashboard) File() ([]byte, error) {
	content := struct {
		UID           string      `json:"uid"`
		Title         string      `json:"title"`
		Description   string      `json:"description"`
		Tags          []string    `json:"tags"`
		SchemaVersion int         `json:"schemaVersion"`
		Editable      bool        `json:"editable"`
		GraphTooltip  int         `json:"graphTooltip"` // 1: one cursor in all panels
		Refresh       string      `json:"refresh"`
		Time          object      `json:"time"`
		Links         []object    `json:"links"`
		Templating    object      `json:"templating"`
		Annotations   object      `json:"annotations"`
		Panels        []panelFile `json:"panels"`
	}{
		UID: d.UID, Title: d.Title, Description: d.Description, Tags: []string{"underlay"}, SchemaVersion: schema,
		Editable: true, GraphTooltip: 1, Refresh: "1m", Time: object{"from": "now-6h", "to": "now"},
		Links: []object{{
			"title": "Underlay", "type": "dashboards", "tags": []string{"underlay"}, "asDropdown": false,
			"includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link", "tooltip": "", "url": "",
		}},
		Templating: object{"list": d.variables()}, Annotations: object{"list": []object{}}, Panels: d.panels(),
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(content); err != nil {
		return nil, fmt.Errorf("writing dashboard %s: %w", d.UID, err)
	}
	return []byte(wrapped(out.Bytes(), 0) + "\n"), nil
}

func (d Dashboard) variables() []object {
	all := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.Variables {
		query := fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Name)
		all = append(all, object{
			"name": v.Name, "label": v.Title, "type": "query", "datasource": chosen(), "definition": query,
			"query":   object{"query": query, "refId": v.Name},
			"refresh": 2, "sort": 1, // when the time changes; by name
		})
	}
	return all
}

// panels puts each panel at its place: side by side as far as the width goes.
func (d Dashboard) panels() (all []panelFile) {
	const columns = 24
	id, x, y, height := 0, 0, 0, 0
	place := func(w, h int) (int, object) {
		if x+w > columns {
			x, y, height = 0, y+height, 0
		}
		at := object{"x": x, "y": y, "w": w, "h": h}
		id, x, height = id+1, x+w, max(height, h)
		return id, at
	}
	for _, row := range d.Rows {
		x = columns // the headline begins a line
		number, at := place(columns, 1)
		all = append(all, panelFile{ID: number, Type: "row", Title: row.Title, GridPos: at, Collapsed: new(bool), Panels: &[]any{}})
		kind := Kind("")
		for _, p := range row.Panels {
			if p.Kind.height() != kind.height() {
				x = columns
			}
			kind = p.Kind
			number, at := place(p.Kind.width(), p.Kind.height())
			all = append(all, p.file(number, at))
		}
	}
	return all
}

func (p Panel) file(id int, at object) panelFile {
	defaults := object{"unit": string(p.Unit), "min": 0, "thresholds": object{"mode": "absolute", "steps": p.Good.steps()}}
	if p.Unit == Share {
		defaults["max"] = 1
	}
	if p.ByNode {
		defaults["links"] = []object{{"title": "this node", "url": "/d/underlay-node?var-node=${__field.labels.node}&${datasource:queryparam}&${__url_time_range}"}}
	}
	last := object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
	options := map[Kind]object{
		Number: {"reduceOptions": last, "colorMode": "background", "graphMode": "area"},
		Bars:   {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"},
		Lines: {
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}[p.Kind]
	if p.Kind == Lines {
		defaults["custom"] = object{"fillOpacity": 10, "showPoints": "never"}
	}
	out := panelFile{
		ID: id, Type: string(p.Kind), Title: p.Title, Description: p.Help, GridPos: at, Datasource: chosen(),
		FieldConfig: object{"defaults": defaults, "overrides": []object{}}, Options: options,
	}
	for i, q := range p.Queries {
		legend := q.Legend
		if legend == "" {
			legend = p.Title
		}
		out.Targets = append(out.Targets, target{string(rune('A' + i)), q.Expr, legend, p.Kind == Bars})
	}
	return out
}

// wrapped writes what fits on a line as one line, and anything else with a line for each part.
func wrapped(value json.RawMessage, depth int) string {
	const width = 100
	short := strings.TrimSpace(string(value))
	if len(short)+2*depth <= width || (short[0] != '{' && short[0] != '[') {
		return short
	}
	var parts []string
	decoder := json.NewDecoder(strings.NewReader(short))
	for token, err := decoder.Token(); err == nil && decoder.More(); {
		var key string
		if token == json.Delim('{') {
			name, _ := decoder.Token() // it was encoded by us
			key = fmt.Sprintf("%q: ", name)
		}
		var part json.RawMessage
		if err = decoder.Decode(&part); err == nil {
			parts = append(parts, strings.Repeat("  ", depth+1)+key+wrapped(part, depth+1))
		}
	}
	return short[:1] + "\n" + strings.Join(parts, ",\n") + "\n" + strings.Repeat("  ", depth) + short[len(short)-1:]
}
