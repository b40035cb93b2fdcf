package config

// LoadAgent reads the same file as Load for the node agent: without a token, Robot and environment
// variables, and without requiring settings that only the controller manager needs. An invalid
// file is refused as a whole, and warnings are left to Load. clusterCIDR is the flag's value.
// Inventory is empty with a cloud, which is the source of the addresses of Nodes.
func LoadAgent(path, clusterCIDR string, readFile func(string) ([]byte, error)) (Config, error) {
	l := &loader{
		flags: Flags{clusterFlag: clusterCIDR}, file: path,
		fileFlag: "--config", getenv: func(string) string { return "" }, readFile: readFile, onNode: true,
	}
	err := l.load(nil)
	if l.Provider != Metal {
		l.Inventory = nil
	}
	return l.Config, err
}
