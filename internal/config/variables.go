package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// variablePrefix returns the prefix of a setting's variable, or "" for other variables.
func variablePrefix(name string) string {
	for _, prefix := range []string{"HCLOUD_", "ROBOT_"} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// UnknownVariables returns a warning for each variable in environ, a list as returned by
// os.Environ, that looks like a setting and has no effect, such as a mistyped variable or one of
// another program. It is not an error, because a working cluster must not lose its controllers
// over a variable without effect. A value is never repeated, since it might be a secret.
func UnknownVariables(environ []string) []Warning {
	set := map[string]bool{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); value != "" && variablePrefix(name) != "" {
			set[name] = true
		}
	}
	known := knownVariables()
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(known, name) && !ofService(name, set) {
			warnings = append(warnings, Warning{Field: name, Problem: "is not known and has no effect; " + advice(name, known)})
		}
	}
	return warnings
}

// knownVariables returns the variables that have an effect and those of foreign.
func knownVariables() []string {
	var names []string
	for _, row := range settings(&loader{}) {
		if variablePrefix(row.env) != "" {
			names = append(names, row.env)
		}
	}
	for _, v := range foreign() {
		names = append(names, v.name)
	}
	return names
}

// advice suggests the nearest known variable with the same prefix, by the rest of the name.
func advice(name string, known []string) string {
	prefix := variablePrefix(name)
	var endings []string
	for _, k := range known {
		if ending, same := strings.CutPrefix(k, prefix); same {
			endings = append(endings, ending)
		}
	}
	if nearest := nearestKey(strings.TrimPrefix(name, prefix), endings); nearest != "" {
		return "did you mean " + prefix + nearest + "?"
	}
	return "unset it; docs/reference/configuration.md lists those that have one"
}

// ofService reports whether a variable describes a Service to the pods of its namespace, such as
// hcloud-csi's. Each Service has several, and always <NAME>_SERVICE_HOST.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
func ofService(name string, set map[string]bool) bool {
	for other := range set {
		service, is := strings.CutSuffix(other, "_SERVICE_HOST")
		if is && (name == service+"_PORT" || strings.HasPrefix(name, service+"_PORT_") || strings.HasPrefix(name, service+"_SERVICE_")) {
			return true
		}
	}
	return false
}

// variable is read by the Hetzner cloud controller manager and not by Underlay.
type variable struct {
	name, why string
	// quiet is the boolean without a warning, since Underlay always behaves so; nil if none.
	quiet *bool
}

// foreign returns variables without effect. Values are never repeated: some are secrets.
func foreign() []variable {
	yes, no := true, false
	const cache = "one list of the servers serves all controllers, and is read again when it has to be"
	return []variable{
		{name: "HCLOUD_DEBUG", quiet: &no, why: "there is no dump of API traffic"},
		{name: "HCLOUD_METRICS_ENABLED", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_METRICS_ADDRESS", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", quiet: &yes, why: "whether the own server is attached to the network is never checked; each Node's attachment is"},
		{name: "HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", quiet: &yes, why: "every Node gets the label of its zone"},
		{name: "HCLOUD_SERVER_CACHE_MODE", why: cache},
		{name: "HCLOUD_SERVER_CACHE_MAX_AGE", why: cache},
		{name: "ROBOT_CACHE_TIMEOUT", why: "one list of the dedicated servers is kept for five minutes, and read again sooner when it has to be"},
		{name: "ROBOT_RATE_LIMIT_WAIT_TIME", why: "requests are counted and wait for their quota; after a refusal they rest for a minute, and longer each time"},
	}
}

func (l *loader) foreignVariables() {
	for _, v := range foreign() {
		text := l.getenv(v.name)
		if text == "" {
			continue
		}
		if on, err := strconv.ParseBool(text); err == nil && v.quiet != nil && on == *v.quiet {
			continue
		}
		l.warn(v.name, "has no effect: %s", v.why)
	}
}
