export default { test: { globalSetup: './lockproxy.setup.js' } };
