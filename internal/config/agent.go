package config

// LoadAgent reads the same file as Load, for the agent on a node: without a token, Robot and
// environment variables, and without wanting settings that may stand in the controller manager's. A
// file that is wrong is refused as a whole, and warnings are left to Load. clusterCIDR is that flag's
// value. Inventory is empty beside a cloud, which vouches for the addresses of Nodes.
func LoadAgent(path, clusterCIDR string, readFile func(string) ([]byte, error)) (Config, error) {
	l := &loader{
		flags:    Flags{CloudConfig: path, ClusterCIDR: clusterCIDR, ConfigureCloudRoutes: true},
		fileFlag: "--config", getenv: func(string) string { return "" }, readFile: readFile, onNode: true,
	}
	err := l.load(nil)
	if l.Provider != Metal {
		l.Inventory = nil
	}
	return l.Config, err
}
